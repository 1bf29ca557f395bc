// Package tree starts a program and ends it with all processes that it has started, also
// outside its process group and session.
//
// On Linux that is a control group where the service manager delegates one ([Groups]),
// the processes of the program's user where it has one of its own, and otherwise the
// orphans that a subreaper inherits (package reaper). On Windows it is a job object.
// Elsewhere it is the
// process group alone, which a process can leave.
//
// [NewCommand] and [Start] start it with its [Limits], [Program.AskToStop] and
// [Program.Kill] reach all of it, and [Program.Exited] tells how it ended. Files named
// after an operating system have what differs there.
//
// A shell sets the limits and becomes the program. prlimit would leave the program a moment without
// limits, and ptrace needs rights that a sandbox takes away. The worker itself is not the subreaper,
// since it could not tell to which job an orphan belongs. A process group is killed before its
// leader is reaped, so that its id cannot be reused yet. The goroutine that started a program stays
// on its thread, because Linux ends the program with that thread.
package tree
