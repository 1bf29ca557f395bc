// Package demo is `lab demo`: real worker processes hash files on a local Azure
// while their VMs are killed, frozen and evicted, and a table compares promises with
// measurements.
//
//	files ──▶ storage emulator ◀──▶ worker processes ("VMs") ◀── metadata emulator
//	               │ hooks                  │ log lines                ▲
//	               └────────▶ recorder ◀────┘                          │ notices
//	                             │                                     │
//	                          history ──▶ controller (kill, freeze, evict)
//	                             │
//	                    oracle, findings ──▶ report
//
// The recorder takes stored data from the emulator, and digests from the lab's own
// hashing. It takes from the workers' logs only when they started,
// hashed, stopped or released something. The findings are a pure function of the
// history, so each promise is tested with a history that breaks it.
package demo
