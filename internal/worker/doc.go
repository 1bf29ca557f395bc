// Package worker runs the process that everything else is for: it claims messages,
// has their jobs run, and releases everything in time when its VM is taken away.
//
//	warm up → recover → resume → process ─────────────────────▶ shut down
//	                               │                              ▲
//	             claim.go ─▶ delivery.Runner ─▶ message deleted    │
//	                               │                              │
//	             events.Responder ─┴─ notice / SIGTERM ─▶ drain ──┘
//
// Where to find each step:
//
//   - worker.go: the states of package lifecycle, what starts a drain, and how its
//     end is reported.
//   - warmup.go: the worker's name, and whether storage answers.
//   - heartbeat.go: the heartbeat that operators and other workers read, and how the
//     last run of this worker ended.
//   - claim.go: the loop that keeps the slots busy; rotation.go says which queue it
//     asks, and how often, package intake for how many messages; buffer.go takes the
//     next message that may be started, and releases messages that get no slot.
//   - loss_estimate.go: how VMs like this one end, for the checkpoint policy.
//   - loops.go: whether the worker's loops still turn.
//   - config.go and observer.go: the configuration of a worker, and its reports.
//
// Package delivery handles one message, package events handles scheduled events, and
// package drain handles deadlines. None of the three knows this package.
//
// # Three contexts
//
// To stop taking and to stop doing are one thing after a notice, but the last writes
// must outlive both. So there is one context that a stop ends (claiming and
// handlers), a context that ends with the drain's budget (saving and releasing), and
// a context that ends with the process (watching for events, heartbeats). The cause
// of the first tells handlers why, as a [job.Stop].
//
// # Decisions
//
// Decisions are functions of values, with the time as an argument: pollDelay here,
// [intake.Demand], [checkpoint.OnDelivery], [preempt.Decide], [lifecycle.Next] and the
// rules of packages delivery and events. The loops around them only carry them out.
package worker
