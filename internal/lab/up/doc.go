// Package up is `lab up`: a local Azure for a person, with a scale set on whose VMs it starts
// workers, or whose VMs are terminals in which that person starts them.
//
//	workers, terminals ──▶ storage, metadata, resource manager (Ctrl-C ends them)
//	   ▲                                   │
//	   └──── guide: what to paste          │ eviction, withdrawal
//	                                       │
//	lab evict, lab withdraw ──▶ control ──▶ controller
//	az ... simulate-eviction ─────────────────┘
//
// The controller is one loop that owns the state of the VMs. [Evict] and
// [Withdraw] send it orders from another process.
package up
