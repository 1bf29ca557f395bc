// Package process is the handler for programs in any language: it runs a command
// for each job and exchanges files with it. docs/process.md is the contract for
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
//   - contract.go has the program's environment, its progress and the stop file.
//   - supervise.go is the loop around a running program, collector.go collects
//     its checkpoints. Package tree starts and ends the program with all its processes,
//     package printed logs its output.
//   - verdict.go decides what an exit means, exhaustion.go which errors do not
//     count as failures, with the help of package resource.
//
// # Polling, not notification
//
// The handler polls for a checkpoint four times a second, with one lstat. Kernel
// notifications (inotify, kqueue) differ by system, are missing on network file
// systems and get lost under load, so polling would be necessary anyway.
//
// # Trust
//
// The author of the kinds file decides what runs on the worker. A message decides
// only what the program reads: nothing of it becomes a command, an argument or a
// variable's name, and only id and kind, which are validated, become a variable's
// value. The program has the rights of its user and no more: the worker's
// credentials are not in its environment, and the worker follows no links in the
// program's folder.
package process
