package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ipcKinds are the System V objects. They exist until they are removed, also after
// the process that created them has ended.
var ipcKinds = []struct {
	table  string // in /proc/sysvipc
	column string // of the identifier
	remove func(id uintptr) syscall.Errno
}{
	{"shm", "shmid", func(id uintptr) syscall.Errno {
		_, _, errno := unix.RawSyscall(unix.SYS_SHMCTL, id, unix.IPC_RMID, 0)
		return errno
	}},
	{"sem", "semid", func(id uintptr) syscall.Errno {
		_, _, errno := unix.RawSyscall6(unix.SYS_SEMCTL, id, 0, unix.IPC_RMID, 0, 0, 0)
		return errno
	}},
	{"msg", "msqid", func(id uintptr) syscall.Errno {
		_, _, errno := unix.RawSyscall(unix.SYS_MSGCTL, id, unix.IPC_RMID, 0)
		return errno
	}},
}

// removeIPC removes the user's System V shared memory, semaphores and message
// queues. A later program with the same user id could read them.
func (u *User) removeIPC() error {
	var errs []error
	for _, kind := range ipcKinds {
		table, err := os.ReadFile("/proc/sysvipc/" + kind.table)
		if errors.Is(err, os.ErrNotExist) {
			continue // the kernel has no System V IPC
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ids, err := ipcOf(string(table), kind.column, u.id)
		errs = append(errs, err)
		for _, id := range ids {
			errno, err := u.withEffectiveID(func() syscall.Errno { return kind.remove(id) })
			if errno != 0 && errno != unix.EINVAL && errno != unix.EIDRM { // these two: it is gone
				err = errors.Join(err, fmt.Errorf("remove System V object %s %d of user %d: %w", kind.table, id, u.id, errno))
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ipcOf returns the identifiers of the objects that a user owns or has created: a
// creator can pass an object on to another user, and keeps the right to remove it.
func ipcOf(table, column string, user uint32) (ids []uintptr, err error) {
	id, owner, creator := -1, -1, -1
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if id < 0 { // the header
			id, owner, creator = slices.Index(fields, column), slices.Index(fields, "uid"), slices.Index(fields, "cuid")
			if id < 0 || owner < 0 || creator < 0 {
				return nil, fmt.Errorf("table of System V objects has no column %s, uid or cuid: %.200q", column, line)
			}
			continue
		}
		text := strconv.FormatUint(uint64(user), 10)
		if len(fields) <= max(id, owner, creator) || fields[owner] != text && fields[creator] != text {
			continue
		}
		n, err := strconv.ParseInt(fields[id], 10, 32)
		if err != nil {
			return ids, fmt.Errorf("table of System V objects: %w", err)
		}
		ids = append(ids, uintptr(n))
	}
	return ids, nil
}

// withEffectiveID calls f, which must make one system call and no more, on a
// thread whose effective user is u: System V IPC does not look at the file system
// user. The real and the saved user stay the worker's, and these alone decide who
// may signal a thread.
func (u *User) withEffectiveID(f func() syscall.Errno) (syscall.Errno, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	back := os.Geteuid()
	// RawSyscall, since the functions of package unix change all threads.
	if errno := setEffectiveID(uintptr(u.id)); errno != 0 {
		return 0, fmt.Errorf("remove System V objects as user %d: %w (CAP_SETUID)", u.id, errno)
	}
	result := f()
	if errno := setEffectiveID(uintptr(back)); errno != 0 {
		mustRestore(errno)
	}
	return result, nil
}

func setEffectiveID(id uintptr) syscall.Errno {
	const unchanged = ^uintptr(0)
	_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, id, unchanged)
	return errno
}
