// Package health says whether a process still does what it is for: whether its
// loops turn.
//
// Each loop says when it turns, and by when it will turn again at the latest:
//
//	loop.Turn(now, wait+timeout)     works, or waits for a known time
//	loop.Rest()                      waits for as long as it takes, or has ended
//
// A loop that is overdue hangs: it is deadlocked, or in a call that does not
// return. Nothing but a restart mends that, and so nothing else is ill health.
// A loop that asks a service in vain turns all the same. Were an outage of the
// storage account ill health, automatic repairs would replace every VM of the
// fleet during it.
//
// What a loop promises must cover the longest time that its calls may take,
// their retries included, and some more: a health check that is wrong costs a VM.
package health
