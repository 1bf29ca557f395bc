// Package worker is the engine: it claims messages, runs their jobs, records
// their progress, and lets go of everything in time when its VM is taken away.
//
// A job's way is one file, delivery.go, which reads like this line:
//
//	claim → recover → process ⇄ checkpoint → commit → delete message
//	                     │
//	                     └─ notice / SIGTERM → stop → checkpoint → release
//
// Around it, from the outside in:
//
//   - [Worker] (worker.go) goes through the states of package lifecycle: warm
//     up, recover, resume, process, shut down.
//   - watch.go turns what the metadata service says into a stop; ready.go,
//     acknowledge.go and leader.go let an event go ahead when all are ready.
//   - claim.go is the loop that keeps the slots busy. It asks prefetch.go how
//     many messages to take, and turns.go from which queue.
//   - delivery.go is one message in hand. It asks outcome.go what the end of
//     the handler means, and perform.go does what that says; move.go hands an
//     interrupted job on to VMs of regular priority.
//   - renew.go keeps the message, pace.go says how often.
//   - breaker.go keeps a worker from jobs that all fail on it, rest.go tells it how
//     they ended, and says in a record on which machine a job failed.
//   - drain.go holds the times that a stop has to keep to, gate.go the order of
//     the last writes.
//
// # Three contexts
//
// To stop taking and to stop doing are one thing after a notice, but the last
// writes must outlive both. So there is one context that a stop ends (claiming
// and handlers), and one that ends with the drain's budget (saving and
// releasing). The cause of the first tells handlers why, as a [job.Stop].
//
// # Decisions
//
// What to do is decided by functions of values, with the time as an argument:
// prefetch, pollDelay, breaker.end, nextVisibility, decide, moves, [checkpoint.OnDelivery],
// [preempt.Decide], [lifecycle.Next]. The loops around them only carry it out.
package worker
