// Package delivery takes one claimed message through to its end: it runs the job
// and records its progress, so that any other worker can continue it.
//
// # A message's way
//
// [Runner.Open] makes a [Delivery] of a message, and [Delivery.Run] reads like this
// line:
//
//	claim → acquire → run ⇄ save → commit → delete message
//	                   │
//	                   └─ stop → save → release → message visible again
//
// Each phase is a type, and returns its result. A [Delivery] joins them:
//
//   - message (message.go) is the claimed message on its way: lease, renewal, envelope, log and
//     contexts, and the calls that every phase makes.
//   - admission (admission.go) decides whether the job is run here and now. It finds the handler
//     (handlers.go), passes the circuit breaker (breaker.go), and waits for a slot of the kind
//     (kindlimit.go). It returns an attempt or an outcome.
//   - acquisition (acquire.go) acquires the job's record. quarantine.go protects the worker from
//     jobs that kill their workers.
//   - loader fetches the input files (inputs.go), and loads payload, state and outputs (load.go).
//   - attempt (attempt.go) calls the handler, and enforces the limits of the job. It returns a
//     runEnd. outcome.go decides the outcome. Its functions are pure.
//   - recorder (save.go) writes the record while the handler runs and when it ends. outputs.go
//     stores outputs and the log with each save.
//   - settlement (settle.go) carries the outcome out: commit, release, fail, dead-letter,
//     requeue. movePlan (move.go) moves jobs to the on-demand queue.
//
// Around the line:
//
//   - runner.go holds the state that deliveries share. observer.go defines their reports for
//     metrics. joblines.go writes and limits log lines.
//   - Package renewal renews the message as long as the delivery needs it. Package outbox
//     stores the outputs of the job.
//   - Package active holds the active deliveries. It lets one handler at a time run for a
//     job id. Package running holds the running handlers: it measures each one, and asks all
//     of them to save.
//
// # Who owns what
//
// A message is claimed, and hidden from others until its visibility timeout expires.
// A record is acquired, and written by its owner alone. The record decides: a
// delivery whose message went to another worker may still write, and a delivery
// whose record went to another must not. So a lost message stops the job, and a
// write that the record refuses ends the delivery.
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
//
// # Sick machines
//
// Package breaker has the rules. breaker.go applies them to a job.
package delivery
