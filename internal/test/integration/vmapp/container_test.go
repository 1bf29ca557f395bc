//go:build integration && linux

package vmapp

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/repository"
)

const (
	// insideVariable is set in the process that runs the test in the container.
	insideVariable = "SPOTWORKER_TEST_INSIDE"

	// shared is the path, in the container, of the folder that the outer test prepared.
	shared = "/spotworker-test"

	// bootTimeout bounds the container, from its start to its end.
	bootTimeout = 30 * time.Minute
)

// runner is the unit that runs the test inside. The machine ends with it.
const runner = `[Unit]
After=basic.target
SuccessAction=poweroff-force
FailureAction=poweroff-force

[Service]
Type=oneshot
Environment=%[1]s=%[2]s %[5]s=%[6]s PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
ExecStart=%[3]s/test -test.run=^%[2]s$ -test.v -test.timeout=%[4]s
StandardOutput=file:%[3]s/output
StandardError=inherit
`

// oneContainer is held by the test whose container runs. On hosts with control groups of version 1
// two containers get the same ones, and their systemds would remove each other's.
var oneContainer sync.Mutex

// inContainer runs test in a container that systemd has booted: the Debian in .tools,
// without lasting changes, in a network without a route out. prepare fills a folder with
// the files that the test needs.
func inContainer(t *testing.T, prepare func(t *testing.T, folder string), test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(insideVariable) == t.Name() {
		// Debian's daily work leaves files of its own: those of apt, dpkg and logrotate.
		command(t, "systemctl", "stop", "*.timer")
		test(t)
		return
	}
	nspawn := need.Command(t, "systemd-nspawn")
	root := debian(t)
	folder := t.TempDir()
	prepare(t, folder)
	unit := fmt.Sprintf(runner, insideVariable, t.Name(), shared, bootTimeout-20*time.Second,
		proof.Variable, os.Getenv(proof.Variable))
	put(t, filepath.Join(folder, "test.service"), unit)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	oneContainer.Lock()
	defer oneContainer.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, nspawn, "--directory="+root, "--volatile=overlay", "--register=no", "--keep-unit",
		"--private-network", "--link-journal=no", "--machine="+strings.ToLower(t.Name()), "--bind="+folder+":"+shared,
		"--bind-ro="+self+":"+shared+"/test", "--bind-ro="+filepath.Join(folder, "test.service")+":/etc/systemd/system/spotworker-test.service",
		"--boot", "systemd.wants=spotworker-test.service")
	var console bytes.Buffer
	cmd.Stdout, cmd.Stderr = &console, &console
	// A VM has neither nspawn's system call filter nor its mounts over /proc.
	cmd.Env = append(os.Environ(), "SYSTEMD_SECCOMP=0", "SYSTEMD_NSPAWN_API_VFS_WRITABLE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	ended := cmd.Run()
	output, err := os.ReadFile(filepath.Join(folder, "output"))
	for line := range strings.Lines(string(output)) {
		t.Log(strings.TrimRight(line, "\n"))
	}
	switch {
	case err != nil:
		t.Logf("console of the container:\n%s", console.String())
		need.Missing(t, fmt.Sprintf("a system that boots containers (%v, %v)", ended, err))
	case !strings.Contains(string(output), "--- PASS: "+t.Name()+" "):
		t.Fatalf("the test failed in the container (%v)", ended)
	}
}

// debian returns the folder that tools/debian-root.sh makes.
func debian(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		need.Missing(t, "root, which boots a container")
	}
	root := filepath.Join(repository.Root(t), ".tools", "debian")
	if _, err := os.Stat(root + ".mark"); err != nil {
		need.Missing(t, "Debian in .tools")
	}
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
