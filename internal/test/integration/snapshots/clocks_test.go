//go:build integration && linux

package snapshots

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// uptimeVM has the number of a VM of TestOtherUptimes, the folder of its chain, and its users.
const uptimeVM = "SPOTWORKER_TEST_UPTIME_VM"

// waits is a program that always waits for absolute times of the clocks. It reports clocks that
// step by more than an hour.
const waits = `
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
steps = []

def finished():
    return os.path.exists("finish")

def watch(clock):
    last = time.clock_gettime(clock)
    while not finished():
        time.sleep(0.2)
        now = time.clock_gettime(clock)
        if not 0 < now - last < 3600: steps.append(now - last)
        last = now

def event():
    while not finished(): threading.Event().wait(0.2)

def boottime():
    class Timespec(ctypes.Structure): _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]
    while not finished():
        late = time.clock_gettime(time.CLOCK_BOOTTIME) + 0.2
        libc.clock_nanosleep(time.CLOCK_BOOTTIME, 1, ctypes.byref(Timespec(int(late), int(late % 1 * 1e9))), None)

threads = [threading.Thread(target=watch, args=(clock,)) for clock in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)]
threads += [threading.Thread(target=event), threading.Thread(target=boottime)]
for t in threads: t.start()
print("running", flush=True)
for t in threads: t.join()
open(os.environ["SPOTWORKER_RESULT"], "w").write(f"steps {steps}")
`

// TestOtherUptimes continues a program on VMs that have run for longer and for shorter than the one
// before. Its waits end, and its clocks do not step, also as another user.
func TestOtherUptimes(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	const python = "/usr/bin/python3" // which every user may run
	if _, err := os.Stat(python); err != nil {
		need.Missing(t, python)
	}
	k := program.Kind{Name: "waits", Command: []string{python, "-c", waits}, Snapshot: true}
	if vm, chain, ok := strings.Cut(os.Getenv(uptimeVM), ":"); ok {
		dir, users, _ := strings.Cut(chain, ":")
		onVM(t, k, vm, dir, users)
		return
	}
	unshare := need.Command(t, "unshare")
	for name, users := range map[string][]string{"one user": {"", "", ""}, "users": {"61040-61049", "61050-61059", "61060-61069"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for vm, uptime := range []string{"259200", "0", "864000"} {
				cmd := exec.CommandContext(t.Context(), unshare, "-T", "--monotonic", uptime, "--boottime", uptime,
					os.Args[0], "-test.run=^TestOtherUptimes$")
				cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d:%s:%s", uptimeVM, vm, dir, users[vm]))
				if said, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("VM %d: %v:\n%s", vm, err, said)
				}
			}
			if got, err := os.ReadFile(filepath.Join(dir, "result")); err != nil || string(got) != "steps []" {
				t.Errorf("the program reports %q, %v, want no steps", got, err)
			}
		})
	}
}

// onVM runs the program on one VM of the chain, until its eviction or, on the third, its end.
func onVM(t *testing.T, k program.Kind, vm, dir, ids string) {
	t.Helper()
	var users *sandbox.Users
	if ids != "" {
		users = usersIn(t, ids)
	}
	m, out := newMachine(t, users), filepath.Join(dir, "state")
	saved, _ := os.ReadFile(out) // nil on the first VM
	var content []byte
	if vm == "2" {
		out, content = filepath.Join(dir, "result"), []byte(m.finish(k, saved))
	} else {
		r := m.begin(k, saved, never)
		r.untilRunning(saved)
		time.Sleep(100 * time.Millisecond) // the waits begin
		content = r.evict()
	}
	if err := os.WriteFile(out, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
