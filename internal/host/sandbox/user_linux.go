package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// needed are the capabilities that this package requires.
var needed = []struct {
	number int
	name   string
}{
	{unix.CAP_SETUID, "CAP_SETUID"},
	{unix.CAP_SETGID, "CAP_SETGID"},
	{unix.CAP_KILL, "CAP_KILL"},
}

// checkRights returns an error that names the capabilities that are missing.
func checkRights() error {
	_, data, err := capabilities()
	if err != nil {
		return fmt.Errorf("read this process's capabilities: %w", err)
	}
	var missing []string
	for _, c := range needed {
		if data[c.number/32].Effective&(1<<(c.number%32)) == 0 {
			missing = append(missing, c.name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("programs cannot run as separate users: this process lacks %s. Grant them (AmbientCapabilities= in a unit, "+
			"as the VM package does), or set --program-users none, so that all programs share this worker's user", strings.Join(missing, ", "))
	}
	return nil
}

// ownerOf returns the user id that a file belongs to.
func ownerOf(name string) (id uint32, ok bool) {
	info, err := os.Lstat(name)
	if err != nil {
		return 0, false
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return status.Uid, true
}

// capabilities returns the capabilities of this thread.
func capabilities() (header unix.CapUserHeader, data [2]unix.CapUserData, err error) {
	header = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	err = unix.Capget(&header, &data[0])
	return header, data, err
}

// Apply makes a command run as the user and without capabilities, also as the
// worker's own user. Call it in the goroutine that starts the command, locked to
// its thread: it drops the thread's ambient and inheritable capabilities, which
// the command would get.
func (u *User) Apply(cmd *exec.Cmd) error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop ambient capabilities: %w", err)
	}
	header, data, err := capabilities()
	if err == nil {
		data[0].Inheritable, data[1].Inheritable = 0, 0
		err = unix.Capset(&header, &data[0])
	}
	if err != nil {
		return fmt.Errorf("drop inheritable capabilities: %w", err)
	}
	if u == nil {
		return nil
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.id, Gid: u.id}
	return nil
}

// Do calls f with the user's rights to files. What f creates belongs to the user.
func (u *User) Do(f func() error) error {
	if u == nil {
		return f()
	}
	return u.as(true, f)
}

// MkdirTemp is [os.MkdirTemp] for a folder of the user, mode 0700, in a folder
// that the worker's group may write and the user may not.
func (u *User) MkdirTemp(parent, pattern string) (dir string, err error) {
	if u == nil {
		return os.MkdirTemp(parent, pattern)
	}
	err = u.as(false, func() error {
		dir, err = os.MkdirTemp(parent, pattern)
		return err
	})
	return dir, err
}

// MkdirReadable makes a folder of the worker that the user may read and enter, and no
// other program.
func (u *User) MkdirReadable(parent, pattern string) (dir string, err error) {
	if u == nil {
		return os.MkdirTemp(parent, pattern)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := setFSGroup(int(u.id)); err != nil {
		return "", err
	}
	defer func() { mustRestore(setFSGroup(os.Getegid())) }()
	if dir, err = os.MkdirTemp(parent, pattern); err == nil {
		err = os.Chmod(dir, 0o750) //nolint:gosec // the group is the user's own
	}
	return dir, err
}

// RemoveContent is [RemoveContent] with the rights of the user and of the worker's group.
func (u *User) RemoveContent(dir string) error {
	if u == nil {
		return RemoveContent(dir)
	}
	return u.as(false, func() error { return RemoveContent(dir) })
}

// as calls f while the thread accesses files as the user, and with group also as its
// group.
func (u *User) as(group bool, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if group {
		if err := setFSGroup(int(u.id)); err != nil {
			return err
		}
		defer func() { mustRestore(setFSGroup(os.Getegid())) }()
	}
	if err := setFSUser(int(u.id)); err != nil {
		return err
	}
	defer func() { mustRestore(setFSUser(os.Geteuid())) }()
	return f()
}

// mustRestore panics on an error: the thread would keep a program's rights. The
// kernel always lets a thread return to its effective ids.
func mustRestore(err error) {
	if err != nil {
		panic("sandbox: " + err.Error())
	}
}

// setFSUser sets the file system user id of this thread. The call does not fail; asking
// for an invalid id returns the present id.
func setFSUser(id int) error {
	_, _ = unix.SetfsuidRetUid(id)
	if now, err := unix.SetfsuidRetUid(-1); err != nil || now != id {
		return fmt.Errorf("file accesses as user %d (CAP_SETUID): %w", id, unix.EPERM)
	}
	return nil
}

func setFSGroup(id int) error {
	_, _ = unix.SetfsgidRetGid(id)
	if now, err := unix.SetfsgidRetGid(-1); err != nil || now != id {
		return fmt.Errorf("file accesses as group %d (CAP_SETGID): %w", id, unix.EPERM)
	}
	return nil
}

// killAllScript kills every process that its user may signal, except the shell
// itself. Without capabilities these are the user's own. The kernel blocks fork while
// it signals them, so none escapes. kill fails if there is no process.
const killAllScript = "kill -KILL -1 2>/dev/null; exit 0"

// KillAll kills every process of the user, in any process group or session.
func (u *User) KillAll() error {
	if u == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()                              // not unlocked: the thread has lost its ambient capabilities
		cmd := exec.Command("/bin/sh", "-c", killAllScript) //nolint:noctx // it ends itself
		cmd.Env = []string{}
		cmd.Dir = "/"
		err := u.Apply(cmd)
		if err == nil {
			err = cmd.Run()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("end the processes of user %d: %w", u.id, err)
	}
	return nil
}

// Tasks returns how many processes and threads the user has, as far as /proc shows them.
func (u *User) Tasks() (tasks int) {
	if u == nil {
		return 0
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if id, ok := ownerOf(process); ok && id == u.id {
			tasks += threadsOf(process)
		}
	}
	return tasks
}

// threadsOf returns the number of threads of a process, 0 if it has ended.
func threadsOf(process string) int {
	stat, err := os.ReadFile(filepath.Join(process, "stat"))
	if err != nil {
		return 0
	}
	const number = 17 // of fields between the name in parentheses, which may have any character, and the threads
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= number {
		return 0
	}
	n, _ := strconv.Atoi(fields[number])
	return n
}

// sharedFolders are writable by every user. A later program with the same id would own
// the files that a program leaves there. POSIX shared memory is files in /dev/shm, and
// POSIX message queues are files in /dev/mqueue.
var sharedFolders = []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"}

// Clean removes the user's files in folders that all users may write, and the
// user's System V objects and keys. It is for the end of a job, after [User.KillAll].
func (u *User) Clean() error {
	if u == nil {
		return nil
	}
	errs := []error{u.removeIPC(), u.removeKeys()}
	for _, shared := range sharedFolders {
		entries, err := os.ReadDir(shared)
		if err != nil {
			continue // not there, or not readable for the worker: then not for programs either
		}
		for _, entry := range entries {
			name := filepath.Join(shared, entry.Name())
			if id, ok := ownerOf(name); ok && id == u.id {
				remove := RemoveTree
				if !entry.IsDir() {
					remove = os.Remove
				}
				errs = append(errs, u.Do(func() error { return remove(name) }))
			}
		}
	}
	return errors.Join(errs...)
}

// reachTimeout bounds the attempt to connect.
const reachTimeout = 2 * time.Second

// CanReach reports whether a program of the user can open a TCP connection to
// that address. A firewall rule on the user is checked against the socket's
// owner, which is the thread's file system user.
func (u *User) CanReach(address netip.AddrPort) (bool, error) {
	var reached bool
	err := u.Do(func() (err error) {
		reached, err = canConnect(address)
		return err
	})
	return reached, err
}

// canConnect must not leave the thread, as package net would.
func canConnect(address netip.AddrPort) (bool, error) {
	family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(address.Port()), Addr: address.Addr().As16()})
	if address.Addr().Unmap().Is4() {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().Unmap().As4()}
	}
	socket, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("make a socket: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	switch err := unix.Connect(socket, to); {
	case err == nil:
		return true, nil
	case !errors.Is(err, unix.EINPROGRESS):
		return false, nil // refused at once
	}
	poll := []unix.PollFd{{Fd: int32(socket), Events: unix.POLLOUT}}
	for deadline := time.Now().Add(reachTimeout); ; {
		n, err := unix.Poll(poll, int(max(time.Until(deadline).Milliseconds(), 0)))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n == 0 || err != nil {
			return false, err
		}
		code, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ERROR)
		return err == nil && code == 0, err
	}
}

// HideProcess prevents processes of the same user from reading this one: its memory
// with tokens and payloads (/proc/PID/mem), and its environment with a connection
// string (/proc/PID/environ). It also ends core dumps, which would hold the same.
// Programs that this process starts are not affected.
func HideProcess() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
