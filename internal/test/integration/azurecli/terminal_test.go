//go:build integration && linux

package azurecli

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait: az takes some seconds to start, and a minute on a busy
// machine.
const patience = 5 * time.Minute

// terminal is a shell with a bare environment, in the folder that has bin, and its
// output.
type terminal struct {
	cmd *exec.Cmd

	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (s *terminal) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(text)
}

func (s *terminal) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// until waits until a line that matches a pattern is shown, and returns its first group.
func (s *terminal) until(t *testing.T, pattern string) string {
	t.Helper()
	wanted := regexp.MustCompile(pattern + `()`)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if found := wanted.FindStringSubmatch(s.String()); found != nil {
			return found[1]
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %s in:\n%s", pattern, patience, s)
		}
	}
}

// open starts a script, which ends in an exec. It is interrupted at the end of
// the test.
func open(t *testing.T, script string) *terminal {
	t.Helper()
	s := &terminal{cmd: shell(context.Background(), t, script)}
	s.cmd.Stdout, s.cmd.Stderr = s, s
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		overdue := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
		defer overdue.Stop()
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("%s ended with %v after Ctrl-C:\n%s", script, err, s)
		}
	})
	return s
}

func shell(ctx context.Context, t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-eu", "-c", script)
	cmd.Dir = os.Getenv(folderVariable)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir()}
	cmd.WaitDelay = time.Second // for files that its own children still hold open
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// up is a terminal that runs lab up.
type up struct{ *terminal }

func startUp(t *testing.T, flags ...string) *up {
	t.Helper()
	u := &up{open(t, "exec bin/lab up "+strings.Join(flags, " "))}
	u.until(t, `simulate-eviction .*\n`)
	return u
}

// signIn runs a first command, so that the outputs of later ones have no words about
// sign-in, or about modules that a Debian's Azure CLI cannot load.
func (u *up) signIn(t *testing.T) {
	t.Helper()
	az := u.until(t, `(\S+/az) vm(?:ss)? simulate-eviction`)
	began := time.Now()
	said, err := u.run(t, az+" version && "+az+" account show --output none")
	if err != nil {
		t.Fatalf("sign in: %v: %s", err, said)
	}
	t.Logf("signed in within %s:\n%s", time.Since(began).Round(100*time.Millisecond), said)
}

// block returns the commands that lab up printed, among which there is that
// text.
func (u *up) block(t *testing.T, text string) string {
	t.Helper()
	blocks := strings.Split(u.String(), "\n\n")
	at := slices.IndexFunc(blocks, func(b string) bool {
		return strings.HasPrefix(b, "    ") && strings.Contains(b+"\n", text)
	})
	if at < 0 {
		t.Fatalf("no commands with %q in:\n%s", text, u)
	}
	return blocks[at]
}

// start starts a worker in a terminal of its own.
func (u *up) start(t *testing.T, vm string) *terminal {
	t.Helper()
	commands := strings.Replace(u.block(t, vm), "    bin/worker ", "    exec bin/worker --log-level debug --checkpoint-interval 1s ", 1)
	return open(t, u.everywhere(t)+"\n"+commands)
}

// everywhere returns the commands for every terminal.
func (u *up) everywhere(t *testing.T) string { return u.block(t, "export ") }

// paste runs commands that lab up printed, and returns their output.
func (u *up) paste(t *testing.T, text string) string {
	t.Helper()
	commands := u.block(t, text)
	began := time.Now()
	said, err := u.run(t, commands)
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.TrimSpace(commands), err, said)
	}
	t.Logf("%s took %s", strings.TrimSpace(commands), time.Since(began).Round(100*time.Millisecond))
	return said
}

func (u *up) run(t *testing.T, commands string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	said, err := shell(ctx, t, commands).CombinedOutput()
	return string(said), err
}

// connectionString is the connection string that lab up printed.
func (u *up) connectionString(t *testing.T) string {
	t.Helper()
	return u.until(t, `AZURE_STORAGE_CONNECTION_STRING='([^']+)'`)
}

// counter reads one counter of a file in the form of /proc/net/snmp: a line of
// names and one of values for each protocol.
func counter(t *testing.T, text, protocol, name string) int {
	t.Helper()
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] != protocol:
		case names == nil:
			names = fields
		default:
			value, err := strconv.Atoi(fields[slices.Index(names, name)])
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("no counter %s %s in:\n%s", protocol, name, text)
	return 0
}
