// Package job is the contract between spotworker and the code that does the work
// of a job.
//
// A [Handler] gets a context and a [Job]. It does the work, reports its progress
// with [Job.Report], and returns a result or an error. It may be interrupted at
// any moment, by an eviction of the VM, an update of the worker or a crash. Then
// another worker calls the handler again, and [Job.Saved] returns the state of the
// last checkpoint. A handler is interruptible if it can continue from every state
// that it reports.
//
//	func sum(ctx context.Context, j *job.Job) ([]byte, error) {
//		if err := j.CheckVersion(1); err != nil {
//			return nil, err
//		}
//		cursor := 0
//		if state, _, ok := j.Saved(); ok {
//			cursor = decode(state)
//		}
//		for ; cursor < end; cursor++ {
//			if err := ctx.Err(); err != nil {
//				return nil, err // stopped: the last report is saved
//			}
//			work(cursor)
//			j.Report(job.Progress{State: encode(cursor + 1), Version: 1, Fraction: float64(cursor+1) / end})
//		}
//		return []byte("done"), nil
//	}
//
// # Results and errors
//
// While the context is not cancelled, the return value means:
//
//   - A nil error: success. The result is committed, exactly once per job id.
//   - [Permanent]: the job is dead-lettered, to the poison queue.
//   - [Interrupted]: the handler takes a break. The job is retried a little later,
//     here or on another worker. This is not a failure, but a thousand breaks in a
//     row without progress of the fraction end the job.
//   - [Unavailable]: this machine or a service lacks something that the job needs.
//     The job is retried; this is neither a failure nor a break.
//   - Any other error: a failure. The job is retried with exponential backoff. Five
//     failures in a row without progress, or a hundred in all, dead-letter it.
//     [Limits] sets these numbers for a kind.
//
// After the context is cancelled:
//
//   - Any error is an interruption, and not a failure. [StopOf] returns the reason
//     and the deadline. The exceptions are [Overrun] and [Silent]: exceeding one of
//     these limits (see [WithLimits]) is a failure.
//   - A nil error commits only together with proof that the job is finished: a
//     result that is not nil (it may be empty), or a report of Fraction 1 in this
//     run. Without proof it is an interruption, because a loop that ends with its
//     context looks like a finished loop, and repeating work is safe while committing a
//     part of it is not. A handler without result and fractions that finishes after the
//     stop therefore runs again. To avoid any doubt, return [context.Cause] when
//     stopped.
//
// # Delivery guarantees
//
// The handler runs at least once; its result is committed exactly once. Each id has
// one outcome. The handler may repeat work:
//
//   - After a crash or a lost message, it repeats the work since the last checkpoint.
//   - A worker without a connection to storage runs the job until it learns that
//     another worker has taken over.
//   - A job with a generated id may get two messages, if a put is repeated because
//     its reply was lost. Both may run until the first save of one is refused. An id
//     of your own is looked up first: its handler does not start while another worker
//     has the job, or when the job has ended, as long as its record is kept.
//
// Use [Job.Key] as the idempotency key of side effects such as payments, mails or
// database rows.
//
// # States
//
// A state holds the data that another worker needs to continue, and cannot get
// elsewhere: a cursor, an unfinished hash, intermediate results. Up to [MaxState] it is
// bytes; a larger one is a stream, read with [Job.OpenSaved]. Take it after the work
// that it stands for, in memory that no longer changes. When its format changes,
// increase [Progress.Version]; [Job.CheckVersion] rejects versions that the handler
// does not know.
//
// A report takes about 50 ns and one allocation. The worker decides when to save
// one. The fraction and the text are saved with the state.
//
// # Testing
//
// Package jobtest interrupts a handler at each of its reports, and between them, and
// requires the same result.
package job
