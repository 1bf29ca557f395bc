// Package stage is where runs of the lab take place: a local Azure, workers on simulated VMs, and a
// recorder of what they do to storage. What happens to the VMs is decided by packages demo, by a
// script, and chaos, at random.
//
//	          ┌─────── proxy (one per VM) ───────┐
//	worker ──▶│ records effects, injects faults  │──▶ storage
//	          └────────────────┬─────────────────┘
//	                           ▼
//	                       Recorder ──▶ Facts
//
// Each worker reaches storage through a proxy of its own, which therefore knows who did what.
// Storage is the emulator or another implementation of its protocol, such as Azurite.
//
// [Facts] are the history of each record, which package oracle judges, and who held which message
// when. They contain no word of the workers.
package stage
