// Package producer puts jobs on a queue: many at once, and each id is reported
// after the service has confirmed its message.
//
//	put, Lines, Digests ──▶ Job ──▶ Producer.Run ──▶ message (and payload blob)
//	                         │           │
//	                         └─ *JobError┴─▶ Failed     Confirmed ◀─ id
//
// A source yields jobs, and a [*JobError] for each invalid one, which does not affect
// the others. [Producer.Run] takes jobs in order and puts several at a time. When it is
// stopped it takes no more jobs and finishes jobs in flight, so that every job up to
// one place in the input is handled and none after it.
//
// [Producer.TakeOver] is for jobs whose worker is known to be dead, and
// [Producer.DryRun] reports the jobs that would be put. A [Waiter] waits for jobs to
// end by polling their records, at low cost.
//
// A job's id is its idempotency key: each id has one outcome. Its handler may run
// more than once. Work since the last checkpoint is repeated after a crash or a
// lost message; a worker that was cut off continues until it learns of its
// successor; and two messages of one generated id (storage repeats a put whose
// reply was lost) may run at the same time until the first save of one is refused.
// The record of an id that the caller chose is read first: no handler starts while
// another worker has the job, or after the job has ended, for as long as its record
// is kept. So a run may be repeated safely if the ids come from the input or are
// derived from it, as by [DigestID].
package producer
