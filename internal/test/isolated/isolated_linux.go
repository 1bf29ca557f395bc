package isolated

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/test/need"
)

// childVariable marks the process that plays a test, and exitNotAllowed is its exit code
// where it lacks a right.
const (
	childVariable  = "SPOTWORKER_TEST_CHILD"
	exitNotAllowed = 77
)

// Run runs a test in a process of its own, whose limits concern no other test. Attributes
// are the process's, or nil. It skips the test where the machine does not allow them.
func Run(t *testing.T, attributes *syscall.SysProcAttr, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(childVariable) != "" {
		test(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=60s") //nolint:gosec // the test itself
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.SysProcAttr = attributes
	output, err := cmd.CombinedOutput()
	switch notAllowed := errors.Is(err, unix.EPERM) || cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == exitNotAllowed; {
	case notAllowed:
		need.Missing(t, fmt.Sprintf("the right to a mount namespace of its own (%v)", err))
	case err != nil:
		t.Errorf("%v:\n%s", err, output)
	}
}

// WithDisk runs a test in a process of its own that has a file system of that many bytes,
// in a folder. The file system goes with the process.
func WithDisk(t *testing.T, size int64, test func(t *testing.T, disk string)) {
	t.Helper()
	attributes := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	Run(t, attributes, func(t *testing.T) {
		disk := t.TempDir()
		mount(t, "none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		mount(t, "small", disk, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size))
		t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
		test(t, disk)
	})
}

func mount(t *testing.T, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	switch err := unix.Mount(source, target, kind, flags, data); {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		os.Exit(exitNotAllowed)
	case err != nil:
		t.Fatalf("mount %s: %v", target, err)
	}
}

// FillDisk takes all but so many bytes of a file system, and returns a function that frees
// them.
func FillDisk(t *testing.T, disk string, left int64) (free func()) {
	t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs(disk, &s); err != nil {
		t.Fatal(err)
	}
	others := filepath.Join(disk, "others")
	if err := os.WriteFile(others, make([]byte, max(int64(s.Bavail)*s.Bsize-left, 0)), 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(others); err != nil {
			t.Error(err)
		}
	}
}

// WorkerID is the user and the group of [AsWorker].
const WorkerID = 60500

// WorkerCapabilities are the capabilities of the VM package's unit.
func WorkerCapabilities() []uintptr {
	return []uintptr{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL}
}

// workerVariable marks the process in which [RunAsWorker] runs its test.
const workerVariable = "SPOTWORKER_TEST_AS_WORKER"

// RunAsWorker runs the test in a process like a deployed worker's: not root, with the capabilities
// of the unit alone. A failure there fails the caller, with the output.
func RunAsWorker(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(workerVariable) != "" {
		test(t)
		return
	}
	out, err := AsWorker(t, WorkerCapabilities(), []string{workerVariable + "=1"}, "-test.count=1", "-test.run", "^"+t.Name()+"$")
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// AsWorker runs the test binary as a process like a deployed worker's: not root, with these
// capabilities alone, in a folder of its own that other users may pass through, where its
// temporary files are too. It skips the test unless this process is root's.
func AsWorker(t *testing.T, capabilities []uintptr, environment []string, arguments ...string) (output []byte, err error) {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Missing(t, "root, which makes a process with the capabilities of a deployed worker")
	}
	folder, err := os.MkdirTemp("", "worker-*") //nolint:usetesting // another user must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	program := filepath.Join(folder, "worker") // where that user may run it
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		//nolint:gosec // as above
		err = errors.Join(os.WriteFile(program, self, 0o755), os.Chown(folder, WorkerID, WorkerID), os.Chmod(folder, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, arguments...) //nolint:gosec // the test itself
	cmd.Dir = folder
	cmd.Env = append(append(os.Environ(), "TMPDIR="+folder, "HOME="+folder), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: WorkerID, Gid: WorkerID},
		AmbientCaps: capabilities,
	}
	return cmd.CombinedOutput()
}
