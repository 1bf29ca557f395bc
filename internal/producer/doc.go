// Package producer puts jobs on the queue: many at once, each confirmed by the
// service before its id is told to anybody.
//
//	put, Lines, Digests ──▶ Job ──▶ Producer.Run ──▶ message (and payload blob)
//	                         │           │
//	                         └─ *JobError┴─▶ Failed     Confirmed ◀─ id
//
// A source yields jobs one after another, and a [*JobError] for each that is no
// job: a bad line costs nobody but itself. [Producer.Run] takes them in order
// and puts them several at a time. When it is told to stop it takes no more and
// finishes what it has begun, so that everything up to one place in the input is
// dealt with and nothing after it.
//
// [Producer.TakeOver] is for jobs whose worker is known to be dead, and
// [Producer.DryRun] for finding out what would be put. A [Waiter] waits for jobs
// to end by looking at their records, seldom enough that it costs next to nothing.
//
// A job's id is its idempotency key.
// Each id gets one outcome. Its handler may run more than once: what was done
// since the last checkpoint is done again after a crash or a lost message, a
// worker that was cut off runs on until it learns of its successor, and two
// messages of one generated id (storage repeats a put whose reply was lost) may
// run side by side until the first save of one is refused. An id of your own is
// looked up first: no handler starts while another worker has the job, or once
// it is over, for as long as its record is kept.
// So running again is safe wherever the ids are the input's own, or follow from
// it as [DigestID] does.
package producer
