// Package intake decides how many messages a worker claims, and when.
//
//   - demand.go: how many messages the slots need now, and how many claims may be in
//     flight for them.
//   - pace.go: how fast a queue may be claimed from while storage refuses calls.
//   - poll.go: how often an empty queue is polled, by the size of the fleet.
//
// All of it is values and functions of the time. The claim loop of package worker
// carries them out.
package intake
