// Package jobtest proves that a handler can be interrupted: anywhere, with notice
// or without, and with the result that it would have had otherwise.
//
//	func TestThumbnailSurvivesEvictions(t *testing.T) {
//		jobtest.Run(t, func() job.Handler { return &Thumbnail{} }, jobtest.Case{
//			Payload: []byte(`{"image": "a.png"}`),
//		})
//	}
//
// # What happens
//
// The job is done twice without interruption. That tells the expected result, how
// many reports there are, and how often the handler looks at its context. Then it
// is done again and again, and interrupted each time at another moment:
//
//   - with notice: the context is cancelled within a call of [job.Job.Report], at
//     a look at the context between two reports (Err or Done, also of a context
//     derived from it), or before the handler is called. The last state that the
//     handler reported before it returned is recorded, as a worker does.
//   - without notice: the handler gets no further than one of its reports, or to
//     its end but not to the commit. Recorded is the state of some earlier report,
//     or none, since a worker saves at intervals.
//
// A handler made by a new call of newHandler then goes on from a copy of the
// recorded state, until one returns its result. Some jobs are interrupted once,
// one at each of its reports, some at random.
//
// After that one handler is called for several jobs, as a worker does; a handler
// that changes nothing outside is resumed in a new process; and the handler gets a
// state of a version that it does not know.
//
// # What fails
//
//   - The result differs, or a run that was resumed returns an error.
//   - A run that was stopped returns no error before the job was done: its last
//     state, or the number of its reports, is not that of an uninterrupted run. Where
//     neither a result nor a fraction of 1 shows that it finished, it is resumed, as
//     by a worker.
//   - Progress goes backwards: a run reports a smaller fraction, or a state from
//     before the one that it was resumed from.
//   - The handler ignores its context: it takes longer than [Case.Grace], or goes
//     on reporting.
//   - A state does not survive: its slice was changed after it was reported, a
//     stream gives other bytes the second time, or a limit of package job is passed.
//   - Something survives a run: goroutines stay behind, a handler's second job
//     differs, or a resumed job differs in a new process, which has none of what
//     package-level variables hold in this one.
//   - A state of an unknown version is read or replaced, or ends the job for good:
//     begin with [job.Job.CheckVersion].
//   - Effects differ: something outside happened twice, or not at all. See [Effects].
//
// The failure names the likely cause and tells the story: each run, what was recorded, what came back, and
// what was expected.
//
// # What is in whose hands
//
// A handler that talks to nothing needs no more than this. If it changes something
// outside, [Case.Reset] puts that back before each job, [Case.Check] looks at it
// afterwards, and [Effects] counts what may happen only once.
//
// A process cannot be killed from within. The goroutine that calls Report ends
// there, as by [runtime.Goexit], and the context is cancelled so that others end
// too: deferred functions and cleanups run, which a killed process would not do.
//
// A handler with many reports is interrupted at a sample of them: the first, the
// last, and some of each part between. [Case.Runs] bounds the work, [Case.Seed]
// chooses another sample, and the log says what was done. The same seed makes the
// same sample.
//
// Run waits by the clock of its test: inside testing/synctest that is virtual, so
// that a handler that sleeps for hours is tested in milliseconds.
//
// # The new process
//
// Run starts the test's binary once more, with -test.run for this very test. There
// it resumes the job first and then does it from the beginning, and skips the rest
// of the test. If that fresh job does not come to the known result, the test makes
// another world in each process, the comparison proves nothing, and the log says
// so. It is left out for a [Case] with Reset, Check, effects or SameProcess.
package jobtest
