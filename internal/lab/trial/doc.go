// Package trial is `lab try`: it runs a person's program as a job on the local Azure,
// undisturbed and then evicted again and again, and reports whether the program is
// interruptible and the cost of an eviction.
//
//	undisturbed ─▶ undisturbed ─▶ evicted ──▶ findings ──▶ verdict, advice, report
//	 how long?      same result?   again and again
//
// Workers are real processes, each on a simulated VM with a scratch folder of its own.
// The program runs as on a VM: nothing is put between it and the worker. Four observers
// watch it from outside, and a recorder brings their reports together:
//
//   - the worker's log: starts, ends, records, releases
//   - changes of the files in the job's folder (inotify; Linux alone): when a checkpoint
//     is written, how it gets to its place, what else is kept there
//   - files outside of the job's folder: each worker is in a mount namespace, where the changes
//     in /tmp and home are its own (outside_linux.go; Linux alone, as root)
//   - the processes with the job's variables (/proc; Linux alone): which of them left the
//     program's group, and which outlive it
//
// [judge] makes findings of the record, and is a pure function. Every process that the
// trial started, and every process that the program left behind, is ended before [Run]
// returns.
package trial
