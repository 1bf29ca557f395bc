// Package lifecycle is the state machine of a worker: the five states of the Azure
// guide to interruptible workloads, and Stopped.
//
//	        Warm          Known          Ready
//	Start ───────▶ Recover ─────▶ Resume ─────▶ Process
//	 ▲  │           ▲  │            │              │
//	 │  │           │  │            │              │
//	 │  └───────────┼──┴────────────┴──────────────┤ Notice, Hold
//	 │              │                              │
//	 │ never warm   │ was warm                     ▼ or Terminate
//	 └──────────────┴────────────────────────── Shutdown ────────▶ Stopped
//	             Withdrawn or Unhold                    drained and
//	                                                    asked to end
//
// A VM can be evicted right after its creation, and a process can be ended
// while it warms up, so Notice and Terminate lead to Shutdown from every state
// before it. The step after a drain depends on the event that began the drain:
//
//   - after a notice the worker waits in Shutdown, without any jobs, for the end
//     of the VM. If the platform withdraws the event, the worker continues with
//     Recover, or with Start if this process was never warm;
//   - after a Hold, an operator's drain, it idles in Shutdown in the same way until
//     the Unhold. Where an event stands as well, it waits until both are over;
//   - once the process was asked to end, it stops as soon as the drain is over,
//     regardless of other events.
//
// A drain is never cut short: a withdrawal that arrives during a drain takes effect
// when the drain is over.
//
// The rules are data (see table.go), and [Next] is a pure function over them
// that refuses every event they do not name. The facts of the past that the
// rules need, for instance whether the worker was ever warm, are part of the
// [Position], as [Facts]. [Machine] holds one position for the goroutines of a
// worker. The drawing in docs/evictions.md and table.md are generated from the
// same rules.
//
// This package decides nothing about events of the platform. Its Notice means
// that the worker has to release its jobs now; an announcement that leaves
// minutes or days is not a Notice yet.
package lifecycle

//go:generate go test . -run=^TestDocument$ -update
