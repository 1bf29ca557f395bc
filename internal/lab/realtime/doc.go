// Package realtime replays a scenario with real worker processes, in real time (lab replay --real).
//
// A [replay.Plan] says when each VM comes, has its notice and goes, and when each job is put. A VM is
// a worker process with its own metadata service; storage is the emulator, with 20 ms for each call.
// A VM that goes is killed (SIGKILL).
//
//	config    the bounds of a scenario for one machine
//	run       starts and kills the workers, announces evictions, puts the jobs
//	handler   the jobs of a scenario without a program of the user: they wait, and report states
//	recorder  joins the calls of storage and the workers' logs to runs of jobs
//	measure   the runs as [replay.Plan.Report] counts them
package realtime
