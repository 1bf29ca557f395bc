// Package preempt watches Azure's scheduled events, detects that this VM will be evicted
// or interrupted, and decides the worker's reaction.
//
// An Azure Spot VM is evicted with a notice of at most 30 seconds, given on a
// best-effort basis in a JSON document that the VM must poll for. Four parts turn
// that document into a decision:
//
//	         every second                    pure
//	Client ───────────────▶ Watcher ──────────────────▶ Decide ──▶ Decision
//	  │  Document or error            Observation          ▲           │
//	  │                                                    │           ▼
//	  └──▶ Discover ────────────────── Identity ───────────┘        Notice
//
// The parts:
//
//   - [Client] sends requests to the service, never through a proxy, and
//     distinguishes answers from errors: an error body must never read as "no
//     events".
//   - [Watcher] polls from the start, even before the VM's name is known, and
//     reports [Observation] values: a new document, or that the service has not
//     answered for a while.
//   - [Client.Discover] finds the VM's name, which is not its host name. Every VM
//     of a placement group gets every event, and only the name tells whose it is.
//     When it becomes known, the caller decides again on the last document.
//   - [Decide] is a pure function of a document, an identity and a time. It has
//     an [Action] for every type, status and source of event.
//   - [Client.Acknowledge] lets an event start early, once the worker is ready for
//     it.
//
// A [Decision] to drain becomes a [Notice], and an [Error] around it is the cause
// with which the worker cancels its contexts. With a decision to drain by a later
// time the worker chooses when its jobs stop; [Verdict.Leave] then turns it into a
// drain.
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
// The service may be slow, throttled or unavailable. No single poll blinds the
// watcher: each has its own timeout, the next one is sent on time regardless of the
// previous ones, and a failed one is repeated within two seconds. If no answer comes
// within five seconds, the Observation says since when, the worker saves more often, and
// one patient poll is always in flight: a service that needs longer is still heard.
//
// # Versions
//
// The newest api-version is a preview that not every region has. A Client tries it
// first. If the service refuses it, the generally available one is asked within the same
// poll. If the version in use gives no good answer for 2.5 s, for any error, both take
// turns, and the version that answers is used. While the older one is in use, an
// additional poll tries the newest one every five minutes.
//
// # Limits
//
// The service answers five requests a second for the whole VM. A Client sends at most
// four in any second, for all its callers together, and polls first. Several
// processes on one VM share a [Budget].
package preempt
