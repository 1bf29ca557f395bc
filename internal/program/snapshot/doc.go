// Package snapshot freezes a program with all its processes into files and continues it
// elsewhere, with CRIU. The program needs no change.
//
//	worker ──socket── init (PID 1 of its own namespaces) ──┬── program, a session of its own
//	                                                       └── criu dump, criu restore
//
// [Session] is the worker's side. The init is the worker's own executable, started again in
// a user, PID and mount namespace. It mounts the job's folder at [Place], starts or restores
// the program, takes snapshots on request and ends with the program. With the init all
// processes of the program end.
//
// # A snapshot
//
// A snapshot is a folder:
//
//	snapshot.json   [Meta]: format, machine, mapped files, PIDs, pipes and clocks
//	attributes      modes and times of the files in folder, its pipes and sockets
//	folder/         the job's folder as it was while the program was frozen
//	images/         CRIU's files
//
// The folder is copied while the program is frozen (shared blocks where the file system can
// do that), so memory and files are of the same moment. The last snapshot of a run moves it.
//
// # Privilege
//
// In the user namespace exactly one user exists: the job's. The init has its capabilities in
// this namespace alone, and none on the machine. criu gets CAP_CHECKPOINT_RESTORE,
// CAP_SYS_PTRACE and CAP_SETPCAP of the namespace, the program none. So a hostile image
// gets at most three capabilities over its own namespace, with files as the job's user. The
// id inside is constant, and workers can map it to different users.
//
// # PIDs
//
// A program keeps its PIDs. They begin at 1000, and after a restore the next one is above
// all that are in use. criu and the init of the next worker use lower ones.
//
// # Clocks
//
// The program and criu have a time namespace, so that CLOCK_MONOTONIC and CLOCK_BOOTTIME continue
// on a machine with another uptime: programs wait for absolute times of these clocks.
//
// # Interrupted waits
//
// A freeze interrupts the system calls in which threads wait. criu makes most of them again. Where
// the kernel would need its own memory for that, or leaves it to the program, criu lets the call
// end with EINTR. The init has such threads make their calls again, in the images and in the
// program that continues, for the rest of the time. criu leaves a program that continues stopped
// by SIGSTOP for that.
//
// # Files without a name
//
// criu opens mapped and watched files by name, since other ways take rights over the machine. The
// init gives deleted files in memory names for the time of a dump. Where only memory holds a file, as
// with a semaphore of POSIX, it stops the processes, copies the content to a hidden file of the job's folder and
// gives that to them instead. Watched files are found by their numbers in the job's folder.
//
// # Deadlines
//
// Each call of criu has a deadline. A criu that is killed may leave processes with foreign
// code in them, so the init ends the program then, and the job continues from its last
// snapshot.
package snapshot
