// Package lab runs real worker processes on a local Azure, takes their VMs away
// in the middle of the work, and counts what came of the jobs.
//
//	files ──▶ storage emulator ◀──▶ worker processes ("VMs") ◀── metadata emulator
//	               │                        │                          │
//	               └──── what was written   └── log lines              └── notices
//	                            │                   │                  │
//	                            └────────▶  ledger ◀┴──────────────────┘
//	                                          │
//	                                        audit ──▶ report
//
// [Demo] is the script of `lab demo`. The parts it is made of:
//
//   - [Local] is the storage account, the metadata service and the resource
//     manager, on loopback.
//   - [Fleet] starts workers as VMs and ends them, by process id. It refuses
//     to start one that could reach anything but this machine.
//   - [Ledger] writes down what witnesses see. It believes the emulator about
//     what was stored, its own hashing about digests, and the workers only
//     about when they did what.
//   - audit turns those facts into [Findings]: pure, so that each promise is
//     tested with facts that break it.
//   - report.go is the table.
package lab
