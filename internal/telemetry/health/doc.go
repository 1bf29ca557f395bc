// Package health detects loops of a process that hang.
//
// Each loop reports each turn, and the latest time of its next one:
//
//	loop.Turn(now, wait+timeout)     works, or waits for a known time
//	loop.Rest()                      waits for as long as it takes, or has ended
//
// A loop that is overdue hangs: it is deadlocked, or in a call that does not
// return. Only a restart fixes that, so only that makes a process unhealthy. A loop
// whose calls to a service fail still turns: if an outage of the storage account
// made workers unhealthy, automatic repairs would replace every VM of the fleet.
//
// The time that a loop reports must exceed the longest time that its calls can
// take, with retries: a wrong result costs a VM.
package health
