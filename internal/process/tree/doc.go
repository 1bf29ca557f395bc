// Package tree starts a program and ends it with all processes that it has started: a
// process group, on Windows a job object.
//
// [NewCommand] and [Start] start it with its [Limits], [Program.AskToStop] and
// [Program.Kill] reach all of it, and [Program.Exited] tells how it ended. Files named
// after an operating system have what differs there.
package tree
