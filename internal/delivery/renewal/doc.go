// Package renewal keeps the messages of active jobs hidden from other workers.
//
// One timer serves all messages. A message takes a goroutine only while a call for it is
// in flight, and few calls are in flight at once. A renewal that fails is repeated; a
// refused renewal says that another worker has the message. Which of them may write is
// decided by the job's record, not here.
//
// A renewal is one request without the SDK's retries. Without an answer it is repeated after 2 s,
// or a sixth of a short visibility timeout, and stops nothing. A refused renewal stops the job,
// unless an earlier one had no answer: that one may have changed the receipt. Then the job runs
// until shortly before the visibility that it may have bought ends, and is released in its record
// alone, so that the next delivery resumes at once. After an outage longer than the visibility
// timeout a worker may claim a message that is still active here; its delivery continues under the
// new claim. Small writes of records have a gate of their own and never wait for a renewal.
package renewal
