//go:build integration && linux

package namespace

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/test/need"
)

// MetadataAddress is Azure's. Inside the network it is on the loopback interface.
const MetadataAddress = "169.254.169.254"

// insideVariable is set in the process that runs the test inside.
const insideVariable = "SPOTWORKER_TEST_INSIDE"

// timeout bounds the test inside, the start of its process included.
const timeout = 30 * time.Minute

// Run runs test in a process of its own inside a network of its own. prepare runs
// outside, makes the binaries and files that the test needs, and returns variables for
// the environment inside. Where the system does not allow such a network, or ip (Debian
// package iproute2) is missing, the test is skipped, or fails where CI=true.
func Run(t *testing.T, prepare func(t *testing.T) []string, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(insideVariable) == t.Name() {
		enter(t)
		test(t)
		return
	}
	need.Command(t, "ip")
	output, err := inside(t, prepare(t))
	for line := range strings.Lines(output) {
		t.Log(strings.TrimRight(line, "\n"))
	}
	switch {
	case isRefused(err):
		need.Missing(t, fmt.Sprintf("the right to a network of its own (%v)", err))
	case err != nil:
		t.Fatalf("inside the network: %v", err)
	case strings.Contains(output, "--- SKIP: "+t.Name()):
		need.Missing(t, "a part that the output above names")
	case !strings.Contains(output, "--- PASS: "+t.Name()):
		t.Fatal("the test did not run inside the network")
	}
}

// inside runs this test binary again, for this test alone.
func inside(t *testing.T, environment []string) (output string, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	//nolint:gosec // this very binary
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout="+timeout.String())
	cmd.Env = append(os.Environ(), environment...)
	cmd.Env = append(cmd.Env, insideVariable+"="+t.Name())
	cmd.SysProcAttr = ofItsOwn()
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	return both.String(), err
}

// ofItsOwn requests network and mount namespaces, and the rights to change them,
// which a user who is not root gets in a user namespace.
func ofItsOwn() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid := os.Getuid(); uid != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

// isRefused reports whether the process could not even be started.
func isRefused(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC)
}

// enter checks that this is a network namespace of its own, and adds the metadata
// service's address to its loopback interface.
func enter(t *testing.T) {
	t.Helper()
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			t.Fatalf("interface %s leads out of this network: not one of its own", i.Name)
		}
	}
	ip(t, "link", "set", "lo", "up")
	ip(t, "address", "add", MetadataAddress+"/32", "dev", "lo")
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatalf("keep mounts to this process: %v", err)
	}
}

func ip(t *testing.T, arguments ...string) {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "ip", arguments...).CombinedOutput() //nolint:gosec // constants
	if err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(arguments, " "), err, said)
	}
}

// Hosts makes names resolve to addresses, for every program inside that reads
// /etc/hosts.
func Hosts(t *testing.T, addresses map[string]string) {
	t.Helper()
	lines := []string{"127.0.0.1 localhost"}
	for name, address := range addresses {
		lines = append(lines, address+" "+name)
	}
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(file, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("put a file over /etc/hosts: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount("/etc/hosts", unix.MNT_DETACH) })
}
