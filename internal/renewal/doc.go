// Package renewal keeps the messages of active jobs hidden from other workers.
//
// One timer serves all messages. A message takes a goroutine only while a call for it is
// in flight, and few calls are in flight at once. A renewal that fails is repeated; one
// that is refused says that another worker has the message. Which of them may write is
// decided by the job's record, not here.
package renewal
