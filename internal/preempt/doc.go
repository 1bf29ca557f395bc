// Package preempt learns from the instance metadata service that this VM is
// about to be taken away, and says what follows from it.
//
// An Azure Spot VM is evicted with a notice of at most 30 seconds, given on a
// best-effort basis in a JSON document that the VM must poll for. Four parts
// turn that document into something a worker can act on, and each does one
// thing:
//
//	         every second                    pure
//	Client ───────────────▶ Watcher ──────────────────▶ Decide ──▶ Decision
//	  │  Document or error            Observation          ▲           │
//	  │                                                    │           ▼
//	  └──▶ Discover ────────────────── Identity ───────────┘        Notice
//
// The parts:
//
//   - [Client] asks the service, never through a proxy, and tells an answer
//     from an error: an error body must never read as "no events".
//   - [Watcher] polls from the first moment, also before the VM's own name is
//     known, and reports [Observation] values: a new document, or that no good
//     answer has come for a while.
//   - [Client.Discover] finds the VM's own name, which is not its host name. An
//     event reaches every VM of a placement group, and only the name tells
//     whose it is. Whoever keeps the last document judges it again when the
//     name becomes known.
//   - [Decide] is a pure function of a document, an identity and a time. It has
//     an [Action] for every type, status and source of event.
//   - [Client.Acknowledge] lets an event go ahead before its time, once what was
//     decided is carried out.
//
// A [Decision] to drain becomes a [Notice], and an [Error] around it is the
// cause with which the worker cancels its contexts. A decision to drain by some
// later time leaves it to the worker when its jobs have to stop; [Verdict.Leave]
// makes the drain of it then.
//
// # Two clocks
//
// NotBefore is written by the service's clock, so it is compared with the
// answer's own Date ([Document.Now]), never with the VM's clock, which may be
// minutes off on a machine that has just started. What comes out is a budget, a
// duration; a Notice puts it on the local, monotonic clock.
//
// # Blindness
//
// The service may be slow, throttled or gone. No single poll may blind the
// watcher: each has its own timeout, the next is sent on time whatever became
// of the last, and a failed one is repeated within two seconds. When nothing
// helps, the Observation says since when, and the worker saves more often.
//
// # Versions
//
// The newest version of the interface is a preview that not every region has. A
// Client asks in it first and falls back to the generally available one, within
// the same poll, and for good.
//
// # Limits
//
// The service answers five requests a second for the whole VM. A Client sends
// at most four in any one second, all its callers together, polls first.
// Several processes on one VM share a [Budget].
package preempt
