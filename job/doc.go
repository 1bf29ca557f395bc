// Package job is the contract between spotworker and the code that does the
// work of a job.
//
// A [Handler] gets a context and a [Job]. It works, tells the worker from time
// to time how far it is with [Job.Report], and returns a result or an error.
// Between two reports it may be stopped at any moment: the VM is evicted, the
// worker is updated, the machine dies. Another worker then calls the handler
// again, with the state that was recorded last in [Job.Saved]. A handler is
// interruptible when it can go on from any state it ever reported.
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
//				return nil, err // stopped: everything reported is kept
//			}
//			work(cursor)
//			j.Report(job.Progress{State: encode(cursor + 1), Version: 1, Fraction: float64(cursor+1) / end})
//		}
//		return []byte("done"), nil
//	}
//
// # What counts as what
//
//   - A nil error commits the result, exactly once per job id. Once the context
//     is cancelled a nil error alone is not enough, see below.
//   - An error marked with [Permanent] ends the job in the poison queue.
//   - An error marked with [Interrupted] is a break that the handler takes. The
//     job is tried again a little later, here or elsewhere. No failure is counted;
//     a thousand breaks in a row without progress of the fraction end the job.
//   - An error marked with [Unavailable] says that this machine or a service lacks
//     something. It is never counted.
//   - Any other error is a failure. The job is tried again, later each time;
//     five failures in a row without progress end it in the poison queue, and so do
//     a hundred in all. These numbers are settings of a kind ([Limits]).
//   - Once the context is cancelled, any error is an interruption. It costs the
//     job nothing. [StopOf] tells why, and by when the handler must be gone.
//     The exceptions are [Overrun] and [Silent], the limits of [WithLimits]:
//     exceeding one is a failure.
//   - Once the context is cancelled, a nil error commits only together with proof
//     that the job is finished: a result that is not nil (an empty one counts), or
//     a report of Fraction 1 in this run. Otherwise it is an interruption too. A
//     loop that merely ends when ctx does looks the same as one that is through;
//     doing the rest again is safe, committing a part is not. A handler without
//     result and fractions that finishes after the stop therefore runs again.
//     Return [context.Cause] when stopped, and there is no doubt.
//
// Execution is at least once, the commit of the result exactly once.
// Each id gets one outcome. Its handler may run more than once: what was done
// since the last checkpoint is done again after a crash or a lost message, a
// worker that was cut off runs on until it learns of its successor, and two
// messages of one generated id (storage repeats a put whose reply was lost)
// may run side by side until the first save of one is refused. An id of your
// own is looked up first: no handler starts while another worker has the job,
// or once it is over, for as long as its record is kept.
// For a side effect outside (a payment, a mail, a row) use [Job.Key] as its
// idempotency key.
//
// # States
//
// A state is what another worker needs in order to go on, and nothing that it can
// get elsewhere: a cursor, a hash under way, what was found so far. Up to
// [MaxState] it is bytes; a larger one is a stream, read with [Job.OpenSaved]. It
// is captured after the work that it stands for, in memory that does not change
// any more. [Progress.Version] is for the day when its format changes, and
// [Job.CheckVersion] for the worker that does not know it yet.
//
// A report costs some 50 ns and one allocation; the worker decides when one is
// worth a write. How far a job is, and a few words about it, reach the job's
// record with the next write.
//
// # Proof
//
// Package jobtest interrupts a handler at each of its reports, and between them,
// and demands the same result.
package job
