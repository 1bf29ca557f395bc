// Package vmshare coordinates the workers of one VM through a folder that they share
// while they run, such as systemd's RUNTIME_DIRECTORY:
//
//   - The metadata service answers five requests a second for all of them together
//     ([Dir.Budget]). Workers that start at once share the request for the VM's identity
//     ([Dir.Identity]).
//   - Each has its own instance name, and there are at most four ([Open]).
//   - A scheduled event affects the whole VM. The last worker to be ready acknowledges
//     it ([Dir.Acknowledge]), and no worker that starts later claims messages under it
//     ([Dir.BeginWork]).
//
// # Files
//
//	workers              locked while one of the next four is read or changed
//	instance-NAME        locked by the worker of that name while it runs
//	place-N              locked by one worker while it runs; N is a number from 0 to 3
//	work-NAME            locked by the worker while it has jobs, or may claim some
//	events.json          the events for which workers of this VM are ready
//	requests.json        the latest requests; locked while it is read and written
//	identity.json        the VM's identity, used for a minute; locked while a worker requests it
//
// The locks are flock's, on Windows LockFileEx's: the kernel releases them when the
// process ends, also after a crash. The content of the files is valid for the current
// boot only, and each file may
// be lost at any moment: a worker that finds one damaged assumes the worst. The folder
// itself must exist while a worker runs (RuntimeDirectoryPreserve in a unit, if several
// units share it).
//
// Every wait for a lock has a timeout, so that a frozen worker with a lock does not block
// the others.
package vmshare
