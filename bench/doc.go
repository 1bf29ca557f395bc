// Command bench measures what the worker costs beside programs that do the same with
// less: a loop over the Azure SDK, one over net/http, and the queue consumers of Dapr
// and Benthos. docs/performance.md explains the method and shows the tables.
//
//	bench (this process) ── starts, samples ──▶ side: worker, loop or peer, on one core
//	  │                                            │ HTTP on loopback
//	  └── starts, fills, counts ──▶ storage: the emulator, a process on another core
//
// Each measurement has a storage of its own, filled before the side starts. Sides are
// interleaved, round after round, so that whatever else the machine does meets all of
// them alike: ratios are to be trusted, and rates only together with the load.
package main
