package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/test/isolated"
)

// workerVariable marks the process that acts as a worker: not root, with the
// capabilities that the unit grants. Its value names the check to run.
const workerVariable = "SPOTWORKER_TEST_SANDBOX"

var testRange = Range{60578, 60583}

func TestMain(m *testing.M) {
	if name := os.Getenv(workerVariable); name != "" {
		act := checks[name]
		if act == nil {
			act = programs[name]
		}
		if err := act(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// asWorker runs a check in a process like a deployed worker's, in a folder of its
// own.
func asWorker(t *testing.T, check string, capabilities ...uintptr) error {
	t.Helper()
	out, err := isolated.AsWorker(t, capabilities, []string{workerVariable + "=" + check})
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// checks run in the worker's process.
var checks = map[string]func() error{
	"rights":    func() error { _, err := Open(Config{Range: testRange, Slots: 1}); return err },
	"identity":  checkIdentity,
	"files":     checkFiles,
	"processes": checkProcesses,
	"shared":    checkShared,
	"ipc":       checkIPC,
	"keys":      checkKeys,
	"network":   checkNetwork,
	"hidden":    checkHidden,
}

// programs are other processes that the test binary can be.
var programs = map[string]func() error{"leave ipc": leaveIPC, "leave keys": leaveKeys, "remove": removeAndMeasure}

func TestAsUser(t *testing.T) {
	for name := range checks {
		capabilities := isolated.WorkerCapabilities()
		if name == "hidden" {
			capabilities = nil // they would hide the process already
		}
		t.Run(name, func(t *testing.T) {
			if err := asWorker(t, name, capabilities...); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOpenWithoutRights(t *testing.T) {
	err := asWorker(t, "rights", unix.CAP_SETUID)
	if err == nil || !strings.Contains(err.Error(), "lacks CAP_SETGID, CAP_KILL") || !strings.Contains(err.Error(), "--program-users none") {
		t.Errorf("Open without rights = %v, want an error that names what is missing and what to do", err)
	}
}

// users opens the range and takes a user of it.
func users() (*Users, *User, error) {
	all, err := Open(Config{Range: testRange, Slots: 2})
	if err != nil {
		return nil, nil, err
	}
	user, err := all.Take()
	return all, user, err
}

// twoUsers opens the range and takes two users of it.
func twoUsers() (all *Users, user, other *User, err error) {
	if all, user, err = users(); err == nil {
		other, err = all.Take()
	}
	return all, user, other, err
}

// failure is the finding of a check. The error among its arguments may be nil, which
// cannot be wrapped.
func failure(format string, args ...any) error { return fmt.Errorf(format, args...) }

// shell runs a script as a user, as package process does.
func shell(user *User, dir, script string) (string, error) {
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = dir
	var out []byte
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := user.Apply(cmd)
		if err == nil {
			out, err = cmd.CombinedOutput()
		}
		done <- err
	}()
	err := <-done
	return strings.TrimSpace(string(out)), err
}

// checkIdentity: a program is the user, in its group alone, with no capability
// left; the worker keeps its own.
func checkIdentity() error {
	_, user, err := users()
	if err != nil {
		return err
	}
	got, err := shell(user, "/", "id -u; id -G; grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status | cut -f2 | sort -u")
	if want := fmt.Sprintf("%[1]d\n%[1]d\n0000000000000000", user.ID()); err != nil || got != want {
		return failure("program is %q, %v, want %q", got, err, want)
	}
	if got, err := shell(nil, "/", "grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status | cut -f2 | sort -u"); err != nil ||
		got != "0000000000000000" {
		return failure("program of the worker's own user has capabilities %q, %v, want none", got, err)
	}
	if os.Geteuid() != isolated.WorkerID {
		return fmt.Errorf("worker has become user %d", os.Geteuid())
	}
	return checkRights()
}

// checkFiles: files that Do makes belong to the user, another user cannot read them, the
// worker itself cannot, and a link among them leads nowhere that the user may not go.
func checkFiles() error {
	_, user, other, err := twoUsers()
	if err != nil {
		return err
	}
	home, err := filepath.Abs("home")
	if err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(home, 0o700), os.Chmod(home, 0o731), os.WriteFile("secret", []byte("the worker's"), 0o600)); err != nil {
		return err
	}
	dir, err := user.MkdirTemp(home, "job-*")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "state")
	err = user.Do(func() error { return os.WriteFile(file, []byte("the job's"), 0o600) })
	if err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != user.ID() || info.Mode().Perm() != 0o700 {
		return failure("job's folder: %v, %v, want one of user %d, mode 0700", info, err, user.ID())
	}
	read := func(u *User, name string) (content []byte, err error) {
		err = u.Do(func() error { content, err = os.ReadFile(name); return err })
		return content, err
	}
	if got, err := read(user, file); string(got) != "the job's" || err != nil {
		return failure("the user reads %q, %v", got, err)
	}
	for who, u := range map[string]*User{"another user": other, "the worker": nil} {
		if got, err := read(u, file); !errors.Is(err, fs.ErrPermission) {
			return failure("%s reads %q, %v, want that it is not permitted", who, got, err)
		}
	}
	secret, _ := filepath.Abs("secret")
	if out, err := shell(user, dir, "ln -s "+secret+" link && ls "+home+" || cat "+secret); err == nil {
		return fmt.Errorf("the program lists the jobs, or reads a file of the worker: %q", out)
	}
	if got, err := read(user, filepath.Join(dir, "link")); !errors.Is(err, fs.ErrPermission) {
		return failure("a link of the program leads the worker to %q, %v, want that it is not permitted", got, err)
	}
	if out, err := shell(user, dir, "mkdir -p a/b && chmod 0 a/b a"); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	if err := errors.Join(user.Do(func() error { return RemoveContent(dir) }), os.Remove(dir)); err != nil {
		return err
	}
	return os.RemoveAll(home)
}

// checkProcesses: a program that leaves its group and its session ends with the
// rest, and another user's continues.
func checkProcesses() error {
	all, user, other, err := twoUsers()
	if err != nil {
		return err
	}
	pids := map[*User]int{}
	for _, u := range []*User{user, other} {
		out, err := shell(u, "/", "setsid sleep 300 >/dev/null 2>&1 & echo $!")
		if err != nil {
			return err
		}
		if pids[u], err = strconv.Atoi(out); err != nil {
			return err
		}
	}
	alive := func(u *User) bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pids[u]))
		return err == nil && !strings.Contains(string(status), ") Z ")
	}
	for begun := time.Now(); !alive(user) || !alive(other); time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			return errors.New("the programs did not start")
		}
	}
	if err := all.End(user); err != nil {
		return err
	}
	for begun := time.Now(); alive(user); time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			return errors.New("a process that left its session still runs")
		}
	}
	if !alive(other) {
		return errors.New("another user's process was ended too")
	}
	// The next worker with these ids ends the processes of a killed one.
	if _, err := Open(Config{Range: testRange, Slots: 2}); err != nil {
		return err
	}
	for begun := time.Now(); alive(other); time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			return errors.New("a process of an earlier worker still runs")
		}
	}
	return nil
}

// checkShared: files that a program left in /tmp do not wait for the next program with
// its id, and other files stay.
func checkShared() error {
	_, user, err := users()
	if err != nil {
		return err
	}
	own, err := os.CreateTemp("/tmp", "worker-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(own.Name()) }()
	left, err := shell(user, "/", "dir=$(mktemp -d /tmp/job-XXXXXX) && umask 777 && mkdir $dir/locked && echo $dir")
	if err != nil {
		return fmt.Errorf("%s: %w", left, err)
	}
	if err := user.Clean(); err != nil {
		return err
	}
	if _, err := os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is still there: %w", left, err)
	}
	_, err = os.Lstat(own.Name())
	return err
}

// ipcLeft are the remaining objects of a program, by name: System V identifiers and POSIX
// paths, on one line.
const ipcLeft = "shm %d sem %d msg %d posix %s queue %s"

// leaveIPC is a program that makes one object of each kind, readable for its own
// user alone, and prints which.
func leaveIPC() error {
	shm, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		return err
	}
	sem, _, errno1 := unix.Syscall(unix.SYS_SEMGET, unix.IPC_PRIVATE, 1, unix.IPC_CREAT|0o600)
	msg, _, errno2 := unix.Syscall(unix.SYS_MSGGET, unix.IPC_PRIVATE, unix.IPC_CREAT|0o600, 0)
	if errno1 != 0 || errno2 != 0 {
		return failure("semget: %v, msgget: %v", errno1, errno2)
	}
	posix, err := os.CreateTemp("/dev/shm", "spotworker-test-*")
	if err != nil {
		return err
	}
	queue := "none"
	if _, err := os.Stat("/dev/mqueue"); err == nil {
		queue = filepath.Base(posix.Name())
		name, err := unix.BytePtrFromString(queue)
		if err != nil {
			return err
		}
		_, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_CREAT|unix.O_RDWR, 0o600, 0, 0, 0)
		if errno != 0 {
			return failure("mq_open: %v", errno)
		}
	}
	fmt.Printf(ipcLeft+"\n", shm, sem, msg, posix.Name(), queue)
	return nil
}

// noKeys is the text of a program to which a filter, such as that of a container, forbids keys.
const noKeys = "no keys here"

// leaveKeys is a program that puts a key into each keyring of its user.
func leaveKeys() error {
	runtime.LockOSThread() // whose own the process keyring is: another thread may not write to what is linked to it
	persistent, err := unix.KeyctlInt(unix.KEYCTL_GET_PERSISTENT, -1, unix.KEY_SPEC_PROCESS_KEYRING, 0, 0)
	if err != nil {
		persistent = unix.KEY_SPEC_PROCESS_KEYRING // the kernel has no such keyrings
	}
	for _, ring := range []int{unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING, persistent} {
		_, err := unix.AddKey("user", "left", []byte("secret"), ring)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
			fmt.Print(noKeys)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkKeys: a user has no keys in the kernel after its program.
func checkKeys() error {
	all, user, other, err := twoUsers()
	if err != nil {
		return err
	}
	self, err := filepath.Abs("worker")
	if err != nil {
		return err
	}
	keysOf := func(u *User) (all []string) {
		_ = u.Do(func() error {
			table, err := os.ReadFile("/proc/keys")
			for line := range strings.Lines(string(table)) {
				if strings.Contains(line, fmt.Sprintf(" %d ", u.id)) && strings.Contains(line, " left: ") {
					all = append(all, line)
				}
			}
			return err
		})
		return all
	}
	for _, u := range []*User{user, other} {
		said, err := shell(u, "/", workerVariable+"='leave keys' "+self)
		if err != nil {
			return fmt.Errorf("%s: %w", said, err)
		}
		if said == noKeys {
			return nil
		}
		if len(keysOf(u)) < 2 {
			return failure("keys of the program are %q, want two or three", keysOf(u))
		}
	}
	before := len(keysOf(other))
	if err := all.End(user); err != nil {
		return err
	}
	for late := time.Now().Add(20 * time.Second); len(keysOf(user)) > 0; time.Sleep(10 * time.Millisecond) { // the kernel collects them
		if time.Now().After(late) {
			return failure("keys of a program that ended are %q, want none", keysOf(user))
		}
	}
	if n := len(keysOf(other)); n != before {
		return failure("%d of another user's %d keys are there, want all", n, before)
	}
	return all.End(other)
}

// checkIPC: System V and POSIX objects that a program left are removed with it, and
// objects of another user stay.
func checkIPC() error {
	all, user, other, err := twoUsers()
	if err != nil {
		return err
	}
	self, err := filepath.Abs("worker")
	if err != nil {
		return err
	}
	left := map[*User]string{}
	for _, u := range []*User{user, other} {
		if left[u], err = shell(u, "/", workerVariable+"='leave ipc' "+self); err != nil {
			return fmt.Errorf("%s: %w", left[u], err)
		}
	}
	if n, err := ipcThere(left[user]); n < 4 || err != nil {
		return failure("%d objects of the program are there, %v, want 4 or 5: %s", n, err, left[user])
	}
	before, _ := ipcThere(left[other])
	if err := all.End(user); err != nil {
		return err
	}
	if n, err := ipcThere(left[user]); n != 0 || err != nil {
		return failure("%d objects are left of a program that ended, %v, want 0: %s", n, err, left[user])
	}
	if n, _ := ipcThere(left[other]); n != before {
		return fmt.Errorf("%d of another user's %d objects are there, want all", n, before)
	}
	if err := checkRights(); err != nil {
		return fmt.Errorf("after the removal: %w", err)
	}
	return all.End(other)
}

// ipcThere counts the objects of such a line that still exist.
func ipcThere(line string) (n int, err error) {
	var shm, sem, msg, posix, queue string
	if _, err := fmt.Sscanf(line, strings.ReplaceAll(ipcLeft, "%d", "%s"), &shm, &sem, &msg, &posix, &queue); err != nil {
		return 0, fmt.Errorf("%q: %w", line, err)
	}
	for table, id := range map[string]string{"shm": shm, "sem": sem, "msg": msg} {
		content, err := os.ReadFile("/proc/sysvipc/" + table)
		if err != nil {
			return 0, err
		}
		for row := range strings.Lines(string(content)) {
			if fields := strings.Fields(row); fields[1] == id { // the second column of all tables
				n++
			}
		}
	}
	for _, name := range []string{posix, "/dev/mqueue/" + queue} {
		if _, err := os.Lstat(name); err == nil {
			n++
		}
	}
	return n, nil
}

// TestIPCOf: objects count as a user's that are its own or that it has created.
func TestIPCOf(t *testing.T) {
	const table = "       key      shmid perms  size  cpid  lpid nattch   uid   gid  cuid  cgid\n" +
		"         0          7   600  4096    11    12      0 60578 60578 60578 60578\n" +
		"         0          8   600  4096    11    12      0 60579 60579 60578 60578\n" +
		"         0          9   600  4096    11    12      0 60578 60578 60579 60579\n" +
		"         0      60578   600  4096    11    12      0 60579 60579 60579 60579\n"
	if got, err := ipcOf(table, "shmid", 60578); fmt.Sprint(got) != "[7 8 9]" || err != nil {
		t.Errorf("ipcOf = %v, %v, want 7, 8 and 9", got, err)
	}
	if got, err := ipcOf(table, "msqid", 60578); err == nil {
		t.Errorf("ipcOf without the column = %v, nil, want an error", got)
	}
}

// checkNetwork: CanReach distinguishes an address that is served from an address that is not.
func checkNetwork() error {
	_, user, err := users()
	if err != nil {
		return err
	}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue // no IPv6 here
		}
		at := netip.MustParseAddrPort(listener.Addr().String())
		if reached, err := user.CanReach(at); !reached || err != nil {
			return failure("CanReach(%s) = %t, %v, want true", at, reached, err)
		}
		_ = listener.Close()
		if reached, err := user.CanReach(at); reached || err != nil {
			return failure("CanReach(%s) after its end = %t, %v, want false", at, reached, err)
		}
	}
	return nil
}

// checkHidden: a program of the same user cannot read the worker's environment and
// memory once the worker hides itself, and could before.
func checkHidden() error {
	read := fmt.Sprintf("cat /proc/%d/environ", os.Getpid())
	if out, err := shell(nil, "/", read); err != nil || !strings.Contains(out, workerVariable) {
		return failure("before, a program reads %d bytes of the environment, %v: the check shows nothing", len(out), err)
	}
	if err := HideProcess(); err != nil {
		return err
	}
	for _, file := range []string{"environ", "mem", "maps"} {
		if out, err := shell(nil, "/", fmt.Sprintf("head -c 1 /proc/%d/%s", os.Getpid(), file)); err == nil {
			return fmt.Errorf("a program opens the worker's %s: %q", file, out)
		}
	}
	return nil
}
