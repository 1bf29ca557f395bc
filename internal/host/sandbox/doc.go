// Package sandbox runs each job's program as a separate system user, so that the
// program can access neither its worker nor another job.
//
// [Open] reserves user ids for one worker, [Users.Take] gives one to a job, and a [User]
// acts for the job:
//
//   - [User.Apply] makes a command run as the user, with no group but its own and
//     without the worker's capabilities.
//   - [User.Do] calls a function whose file accesses are checked against the
//     user's rights. The worker reads a checkpoint and removes a folder that way,
//     so a symbolic link or a race in a job's folder cannot lead it to files that
//     the program cannot reach itself.
//   - [User.KillAll] kills every process of the user, also outside
//     their process group or session.
//   - [User.Clean] removes the user's files in folders that all users may write,
//     and its shared memory, semaphores and message queues.
//
// The ids need no entry in /etc/passwd. The worker needs the capabilities
// CAP_SETUID, CAP_SETGID and CAP_KILL, and none that overrides file permissions.
//
// # How file accesses change user
//
// Linux keeps a file system user id for each thread (setfsuid(2)), which NFS servers use
// for the same purpose. [User.Do] sets it on a locked thread and
// sets it back. Other goroutines do not notice. A function called by Do must not
// leave file accesses to goroutines that it starts: these have the worker's
// rights.
//
// A nil *User is the worker's own user: Do calls its function, Apply takes
// the worker's capabilities from a command, and the other methods do nothing.
package sandbox
