// Package oracle judges the fate of jobs by the calls to storage, and not by the reports
// of workers.
//
//	demo, chaos: proxies before storage ──▶ History ──▶ Judge, WorstIdle
//	worker's histories in virtual time ──▶ Record.Add, write by write; Steering
//
// A [History] holds the writes of each job's record and the deletions of its
// messages. The writes are put into the order in which they took effect by their ETags:
// each names the ETag that it replaced. [Record.Add] applies the rules to one write, and
// [Job.Judge] to all of them and the outcome:
//
//   - [Lost]: every job gets an outcome, before its message is deleted;
//   - [Twice]: no job is committed more than once;
//   - [Stale]: no write takes effect by a worker that does not own the record any
//     more, over an outcome, without a condition, or out of sequence;
//   - [Wrong]: a result is the one expected;
//   - [Backwards]: no stored state is behind the one before;
//   - [Miscounted]: a failure is counted only if a handler failed;
//   - [Unjust]: a job is dead-lettered only for cause;
//   - [Disobeyed]: workers do in time what operators ask. Nothing is claimed while
//     claiming is paused, a drained worker holds no job and claims none, and a
//     cancelled job is stopped and not started ([Steering] judges these).
//
// [WorstIdle] finds the longest time that a job waited while a worker that could
// have taken it had a free slot.
//
// The package shares no code with the product, whose faults it would share.
package oracle
