// Package jobtest tests that a handler survives interruptions: at any point, with or
// without notice, the job must come to the same result.
//
//	func TestThumbnailSurvivesEvictions(t *testing.T) {
//		jobtest.Run(t, func() job.Handler { return &Thumbnail{} }, jobtest.Case{
//			Payload: []byte(`{"image": "a.png"}`),
//		})
//	}
//
// # What it does
//
// [Run] first does the job twice without interruption, and records the expected
// result, the number of reports, and how often the handler checks its context. Then
// it repeats the job many times and interrupts it at a different point each time:
//
//   - With notice, as in an eviction: it cancels the context during a call of
//     [job.Job.Report], when the handler checks its context between two reports (Err
//     or Done, also of a derived context), or before it calls the handler. The last
//     state that the handler reported before it returned is saved, as a worker does.
//   - Without notice, as in a crash: the handler gets no further than one of its
//     reports, or returns but its result is not committed. The saved state is from some
//     earlier report, or there is none, since a worker saves at intervals.
//
// A handler from a new call of newHandler then resumes from a copy of the saved
// state, until one returns the result. Some jobs are interrupted once, one at each
// of its reports, some at random points.
//
// Finally, one handler gets several jobs, as in a worker; a handler that changes
// nothing outside is resumed in a new process; and the handler gets a state of an
// unknown version.
//
// # What fails a test
//
//   - The result differs, or a resumed run returns an error.
//   - A stopped run returns no error before the job is done: its last state, or the
//     number of its reports, differs from an uninterrupted run. If neither a result nor
//     a fraction of 1 shows that it finished, it is resumed, as by a worker.
//   - Progress goes backwards: a run reports a smaller fraction, or a state from before
//     its starting state.
//   - The handler ignores its context: it takes longer than [Case.Grace] to return,
//     or continues to report.
//   - A state does not survive: its slice was changed after the report, a stream
//     returns different bytes the second time, or it exceeds a limit of package job.
//   - Something survives a run: goroutines are left over, a handler's second job
//     differs, or a resumed job differs in a new process, where package-level
//     variables have their initial values.
//   - A state of an unknown version is read or replaced, or dead-letters the job:
//     begin with [job.Job.CheckVersion].
//   - Effects differ: something outside happened twice, or not at all. See [Effects].
//     A follow-up job ([job.Job.Put]) is an effect. Outputs ([job.Job.SendOutput]) are
//     compared by their paths and contents.
//
// The failure names the likely cause and lists each run: its starting state, the saved
// state, its result or error, and the expected result.
//
// # What the test supplies
//
// A handler without external effects needs only a payload. If it changes something
// outside, [Case.Reset] undoes that before each job, [Case.Check] verifies it
// afterwards, and [Effects] counts effects that may happen only once.
//
// A test cannot kill its own process. Instead, the goroutine that calls Report ends
// there, as by [runtime.Goexit], and the context is cancelled so that others end too.
// Deferred functions and cleanups run, unlike in a killed process.
//
// A handler with many reports is interrupted at a sample of them: the first, the last,
// and some of each part between. [Case.Runs] limits the number of runs, [Case.Seed]
// selects the sample, and the log reports the runs. The same seed selects the same
// sample.
//
// Run uses the clock of its test: inside testing/synctest that is virtual, so that a
// handler that sleeps for hours is tested in milliseconds.
//
// # The new process
//
// Run starts the test binary again, with -test.run for this test. There it first
// resumes the job, then does it from the beginning, and skips the rest of the test.
// If the job from the beginning does not have the known result, the test sets up
// something different in each process; the comparison proves nothing then, which the
// log reports. A [Case] with Reset, Check, effects or SameProcess has no new process.
package jobtest
