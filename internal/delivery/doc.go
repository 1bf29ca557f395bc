// Package delivery takes one claimed message through to its end: it runs the job
// and records its progress, so that any other worker can continue it.
//
// # A message's way
//
// [Runner.Open] makes a [Delivery] of a message, and [Delivery.Run] reads like this
// line:
//
//	claim → acquire → load → run ⇄ save → commit → delete message
//	                          │
//	                          └─ stop → save → release → message visible again
//
// Each step makes a value from the value before, or an [outcome] if the job ends there:
//
//		claimed ──acquire──▶ owned ──load──▶ loaded ──run──▶ ended ──conclude──▶ outcome ──settle
//
//	  - claimed (claimed.go) is the message: lease, renewal, envelope, kind, log and contexts, and
//	    the calls that every step makes. eligible.go decides whether this worker runs
//	    the job now; places.go takes the pass of the circuit breaker (breaker.go), the slot of the
//	    kind, and devices.
//	  - owned (acquire.go) is a job whose record this delivery owns. eligible.go decides again by the
//	    record before that, and quarantine.go has the rules for jobs that may kill their workers.
//	  - loaded (load.go) is a job with its input files (inputs.go), payload, state, outputs and log.
//	  - ended (run.go) is a job whose handler has returned. While it runs, save.go writes the record,
//	    and outputs.go stores outputs, follow-up jobs and the log. outcome.go decides the outcome.
//	    Its functions are pure.
//	  - settle.go carries the outcome out: commit, release, fail, dead-letter, requeue. move.go moves
//	    jobs to the on-demand queue.
//
// The values share the [Runner] alone, which they call env.
//
// Around the line:
//
//   - runner.go holds the state that deliveries share, and fleet.go the heartbeats of all workers.
//     observer.go defines their reports for
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
