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
// A worker that begins with a backlog claims slowly and eight times as fast each second, for
// three seconds: a fleet that begins together meets the queue's limit gently, and all of its
// workers learn the same share of it. When storage refuses calls, the rate falls by the share
// of a worker's messages that were refused, at least by 7 %, and then grows as in TCP CUBIC.
// The first refusals do not show where the limit is, so the rate then grows faster until calls
// are refused again. A refused blob call counts for every queue. The SDK repeats no claim: the
// claim loop decides.
//
// Only workers without a job count as pollers. A job that waited for more than a second shows
// that fewer workers poll than were counted: its finder then polls as if it were alone. After a
// backlog the waits are spread over the whole interval, because all workers saw the queue empty
// at the same moment.
package intake
