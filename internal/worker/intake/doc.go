// Package intake decides how many messages a worker claims, and when.
//
//   - demand.go: how many messages the slots need now, and how many claims may be in
//     flight for them.
//   - pace.go: how fast a queue may be claimed from while storage refuses calls.
//   - poll.go: how often an empty queue is polled, by the size of the fleet.
//
// All of it is values and functions of the time. The claim loop of package worker
// carries them out.
//
// A worker claims ahead only while a queue has a backlog and jobs are short: as many claims are
// in flight as the slots need while one claim takes. Nothing is claimed ahead after a claim that
// was not full, since other workers have slots for the rest, nor when no job has ended for 2 s.
//
// A worker begins with its share of a queue's limit, by the number of workers in the heartbeats,
// and claims twice as fast each second until storage refuses a call. Then the rate falls, and
// grows slowly until calls are refused again (additive increase, multiplicative decrease). A
// refused blob call counts for every queue. The SDK repeats no claim: the claim loop decides.
//
// Only workers without a job count as pollers. A job that waited for more than a second shows
// that fewer workers poll than were counted: its finder then polls as if it were alone. After a
// backlog the waits are spread over the whole interval, because all workers saw the queue empty
// at the same moment.
package intake
