// Package realclock runs workers for a few seconds with the real clock and goroutines that
// run at the same time: drains, kills, limits, abandoned handlers and renewals. In virtual
// time all readings of the clock between two waits are equal and code takes no time, which
// hides mistakes of another kind. No test judges short times.
package realclock
