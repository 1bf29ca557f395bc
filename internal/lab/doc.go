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
// What all of it stands on:
//
//   - [Local] is the storage account, the metadata service and the resource
//     manager, on loopback (local.go, identity.go, port.go).
//   - [Fleet] starts workers as VMs and ends them, by process id. It refuses
//     to start one that could reach anything but this machine (fleet.go, vm.go,
//     guard.go).
//   - [Choose] and [Upload] make real work of files of this machine (files.go,
//     upload.go, pace.go).
//
// [Demo] is the script of `lab demo` (demo.go, script.go, incidents.go):
//
//   - [Ledger] writes down what witnesses see. It believes the emulator about
//     what was stored, its own hashing about digests, and the workers only
//     about when they did what.
//   - audit turns those facts into [Findings]: pure, so that each promise is
//     tested with facts that break it.
//   - report.go is the table.
//
// [Up] is `lab up`, a local Azure for a person: up.go opens it, guide.go says
// what to paste, control.go and warden.go do what `lab evict`, `lab withdraw` and
// the Azure CLI ask for. [IMDS] is `lab imds`. `lab chaos` is the package beside
// this one.
package lab
