// Package evictions proves what follows from an announced event, from its notice until the
// jobs run elsewhere: drains, freezes, acknowledgements, several workers on a VM, large
// states, moves to the on-demand queue for interruptions and for deadlines.
package evictions
