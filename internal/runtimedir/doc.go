// Package runtimedir is the folder that the workers of one VM share while they
// run, such as systemd's RUNTIME_DIRECTORY. Through it they keep together to
// what holds for the VM as a whole:
//
//   - the metadata service answers five requests a second for all of them
//     ([Dir.Budget]);
//   - each has an instance name of its own, and there are four of them at most
//     ([Open]);
//   - a scheduled event takes away the whole VM, so it is let go ahead by the
//     last of them to have handed everything over ([Dir.Acknowledge]), and none
//     that starts later takes work under it ([Dir.BeginWork]).
//
// # Files
//
//	workers              held while one of the next three is looked at or changed
//	instance-NAME        held by the worker of that name while it runs
//	place-N              held by one worker while it runs; N is a number from 0 to 3
//	work-NAME            held by it while it has, or may get, work
//	events.json          the events that workers of this VM are done for
//	requests.json        the latest requests; held while it is read and written
//
// Held means locked with flock: the kernel lets go of the lock when the process
// ends, however it ends. What the files hold is of use for this start of the
// machine only, and each may be lost at any moment without harm: whoever finds
// one damaged assumes the worst about it. The folder itself must stay while a
// worker runs (RuntimeDirectoryPreserve in a unit, where several units share it).
//
// No lock is waited for without end: a worker that is frozen with one in its
// hands must not stop the others.
package runtimedir
