// Package program is the handler for programs in any language: it runs a command
// for each job and exchanges files with it. docs/jobs.md is the contract for
// authors of such programs.
//
// [ReadKinds] reads the commands from a kinds file, and [NewHandler] makes a
// [job.Handler] of each. [Handler.Run] takes these steps:
//
//	make a folder ─▶ write payload and checkpoint ─▶ start ─▶ supervise ─▶ decide
//	                                                            │  ▲
//	                             collect checkpoint, progress ──┘  └── on a notice:
//	                             and disk usage, 4 times a second      stop file, SIGTERM, SIGKILL (on Windows
//	                                                                   Ctrl-Break and the end of the job object)
//
// The files:
//
//   - kinds.go and settings.go read the kinds file.
//   - folder.go has the files in a job's folder. Package scratch makes and removes
//     the folder, and measures its disk usage.
//   - contract.go has the program's environment, its progress and the content of the
//     stop file.
//   - supervise.go is the loop around a running program and what stops it, collector.go collects
//     its checkpoints. Package tree starts and ends the program with all its processes,
//     package printed logs its output.
//   - checkpointfiles.go makes checkpoints of the files of a program that knows nothing of the
//     contract, with package ownfiles.
//   - snapshots.go makes checkpoints of a program by freezing it, with package snapshot. They
//     take the same way as checkpoints that a program writes.
//   - message.go runs the command of a message, with the files that it brings. stdout.go keeps
//     the standard output, as the result of a program or beside it.
//   - verdict.go decides the meaning of an exit, exhaustion.go which errors do not
//     count as failures, with the help of package resource.
//
// # Polling, not notification
//
// The handler polls for a checkpoint four times a second, with one lstat. Kernel
// notifications (inotify, kqueue) differ by system, are missing on network file
// systems and get lost under load, so polling would be necessary anyway.
//
// A checkpoint that is written to while it is read is noticed by the size, time and
// number of its files. A write that restores a file's time is noticed by the next save, which
// compares the bytes (incremental.go), but not by the save of a stop. Unfinished
// writes of a killed program are left out.
//
// # Limits
//
// On Unix /bin/sh sets the limits of a process before it becomes the program. Everything
// that keeps the program from starting is resource exhaustion, not a failure of the job.
// On Linux oom_score_adj makes the kernel end jobs before the worker. A job at its limit
// on processes is found by the events of its control group, or else in the process list:
// if the unit hides that list (ProtectProc=), the limit holds, and the failure's reason
// does not name it.
//
// # Stopping
//
// A stop waits at most 0.5 s for the stop file before SIGTERM, and SIGKILL waits for no
// file at all.
//
// # Trust
//
// The author of the kinds file decides the programs of the worker. A message decides
// only the program's input: nothing of it becomes a command, an argument or a
// variable's name, and only id, kind and trace, which are validated, become a
// variable's value. A kind whose messages name the command (message.go) is the exception that an
// operator asks for: package command says what such a message may set. The program has the rights of its user and no more: the worker's
// credentials are not in its environment, and the worker follows no links in the
// program's folder. It opens no file there that could make it wait, and no signal waits
// for a file.
//
// # Collecting a checkpoint
//
// A checkpoint is renamed to a name of the worker's before it is read, so a state in transit is
// never being written. Up to 64 KiB it becomes bytes in memory, since small states are sent first
// in a drain.
package program
