// Package process is the handler for programs in any language: it runs a command
// for each job and speaks with it through files. docs/process.md is the contract
// that the author of such a program reads.
//
// [ReadKinds] reads which commands there are from a kinds file, and [NewHandler]
// makes a [job.Handler] of each. A job's way is [Handler.Run]:
//
//		make a folder ─▶ payload, restored checkpoint ─▶ start ─▶ supervise ─▶ judge
//		                                                            │  ▲
//		                                    checkpoint, progress, ──┘  └── notice:
//		                                    disk, four times a second      _STOP, SIGTERM, SIGKILL
//
//	  - scratch.go and folder.go hold the folders; leftovers.go removes those of
//	    dead workers, which have released the locks of lock.go.
//	  - environ.go is what the program finds in its environment.
//	  - program.go starts and ends a process group, as far as the system can.
//	  - supervise.go is the loop around a running program; keeper.go takes its
//	    checkpoints away, progress.go reads what it tells.
//	  - judge.go says what an exit means: a pure function.
//	  - output.go brings what the program prints into the log.
//
// # Looking, not listening
//
// A checkpoint is found by looking for it four times a second. The kernel could
// tell (inotify, kqueue), but differently on every system, not at all on network
// file systems, and it loses events under load, so that one would have to look
// all the same. A look is one lstat.
//
// # Who is trusted
//
// Whoever writes the kinds file decides what runs on the worker. Whoever enqueues
// a job decides what the program reads: nothing of a message becomes a command,
// an argument or a variable's name, and only id and kind, which are checked,
// become a variable's value. The program itself is trusted with its worker's
// user, and with nothing else: the worker's credentials are not in its
// environment, and what it leaves in its folder is looked at without following
// links.
package process
