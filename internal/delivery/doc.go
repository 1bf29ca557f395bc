// Package delivery takes one claimed message through to its end: it runs the job
// and records its progress, so that any other worker can continue it.
//
// # A message's way
//
// [Runner.Open] makes a [Delivery] of a message, and [Delivery.Run] reads like this
// line:
//
//	claim → recover → run ⇄ save → commit → delete message
//	                   │
//	                   └─ stop → save → release → message visible again
//
// The files follow it:
//
//   - delivery.go decodes the message and holds the line together; kinds.go says which
//     workers have a handler for its kind, and how many jobs of it run at once.
//   - recover.go acquires the job's record, and loads its payload and last state.
//   - run.go calls the handler, and enforces the limits of the job.
//   - save.go writes the record while the handler runs and when it ends.
//   - files.go deals with what storage holds of a job besides its record: it fetches the
//     inputs before the handler runs, and stores outputs and the log with each save.
//   - outcome.go decides what the end of the handler means. Its functions are pure.
//   - finish.go carries that out: commit, release, move, fail, dead-letter, put back.
//
// Around the line:
//
//   - finish.go also retries calls to storage that fail, and puts follow-up jobs. Package
//     renewal keeps the message hidden as long as the delivery needs it, and package
//     outbox stores the outputs of the job, which a record names together with its state.
//   - runner.go holds what deliveries share, and observer.go says what they report, for
//     metrics.
//   - Package active holds the active deliveries and lets one handler at a time run for a
//     job id. Package running holds the running handlers: it measures each one, and asks all
//     of them to save. Package lines writes and limits log lines.
//   - blame.go finds out what is to blame: a machine that fails all jobs of a kind (with
//     package breaker), or a job that kills its workers, which it quarantines.
//
// # Who owns what
//
// A message is claimed, and hidden from others until its visibility timeout expires.
// A record is acquired, and written by its owner alone. The record decides: a
// delivery whose message went to another worker may still write, and one whose
// record went to another must not. So a lost message stops the job, and a write that
// the record refuses ends the delivery.
//
// # Contexts
//
// A stop ends the context of the handler. The cleanup context of a delivery outlives
// it until the end of the drain: all last writes use that one. See package drain.
//
// # Shared state
//
// Deliveries share a [Runner]: clients of storage, the kinds and their limits,
// circuit breakers, the visibility timeout, the drain's gate, counters. A Runner
// knows neither the claim loop nor scheduled events; why work stops is the cause of
// the context.
package delivery
