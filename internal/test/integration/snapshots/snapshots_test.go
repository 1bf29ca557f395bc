//go:build integration && linux

package snapshots

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

// never is an interval without a snapshot between the first and the last.
const never = time.Hour

// evicted runs a job that is evicted so often, and returns its result. The program does not
// end before the file finish is in its working folder.
func evicted(t *testing.T, k program.Kind, evictions int) string {
	t.Helper()
	var state []byte
	for range evictions {
		m := newMachine(t, nil)
		r := m.begin(k, state, never)
		r.untilRunning(state)
		time.Sleep(100 * time.Millisecond) // some work is done
		state = r.evict()
	}
	return newMachine(t, nil).finish(k, state)
}

// thrice evicts a program three times, and wants the result of an undisturbed run.
func thrice(t *testing.T, k program.Kind) {
	t.Helper()
	t.Parallel()
	want := evicted(t, k, 0)
	if want == "" {
		t.Fatal("the undisturbed run has no result")
	}
	if got := evicted(t, k, 3); got != want {
		t.Errorf("evicted three times: result %.300q, want that of an undisturbed run, %.300q", got, want)
	}
}

// script is a kind whose program is a shell.
func script(text string) program.Kind {
	return program.Kind{Name: "script", Command: []string{"/bin/sh", "-c", text}, Snapshot: true}
}

// pythonLoop has an open file.
const pythonLoop = `
import os, sys, time
out = open("log", "w")
total = 0
print("running")
i = 0
while i < 40 or not os.path.exists("finish"):
    if i < 40:
        total += i
        out.write(f"{i} {total}\n")
        out.flush()
        i += 1
    time.sleep(0.02)
out.close()
open(os.environ["SPOTWORKER_RESULT"], "w").write(open("log").read() + sys.argv[1])
`

func pythonKind(t *testing.T) program.Kind {
	t.Helper()
	return program.Kind{Name: "loop", Command: []string{need.Command(t, "python3"), "-u", "-c", pythonLoop, "end"}, Snapshot: true}
}

func TestPythonWithAnOpenFile(t *testing.T) {
	withCRIU(t)
	thrice(t, pythonKind(t))
}

// threads is a program with threads, a child and a pipe between both.
const threads = `
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
static long count[4];
static void *work(void *at) {
	for (int i = 0; i < 40; i++) { (*(long *)at) += i; usleep(20000); }
	return NULL;
}
int main(void) {
	int ends[2];
	puts("running"); fflush(stdout);
	if (pipe(ends)) return 1;
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 40; i++) { if (write(ends[1], &i, sizeof i) != sizeof i) return 1; usleep(20000); }
		return 7;
	}
	close(ends[1]);
	while (access("finish", F_OK)) usleep(20000);
	pthread_t all[4];
	for (int i = 0; i < 4; i++) pthread_create(&all[i], NULL, work, &count[i]);
	long sum = 0; int got, status;
	while (read(ends[0], &got, sizeof got) == sizeof got) sum += got;
	for (int i = 0; i < 4; i++) pthread_join(all[i], NULL);
	waitpid(child, &status, 0);
	FILE *out = fopen(getenv("SPOTWORKER_RESULT"), "w");
	fprintf(out, "%ld %ld %ld %ld, child %ld exit %d\n", count[0], count[1], count[2], count[3], sum, WEXITSTATUS(status));
	return fclose(out);
}
`

func TestThreadsAndAChild(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	thrice(t, program.Kind{Name: "threads", Command: []string{compiled(t, threads)}, Snapshot: true})
}

// compiled returns the path of a program in C.
func compiled(t *testing.T, code string) string {
	t.Helper()
	cc, dir := need.Command(t, "cc"), t.TempDir()
	source, binary := filepath.Join(dir, "program.c"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), cc, "-O1", "-pthread", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v: %s", err, said)
	}
	return binary
}

func TestPipeline(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	need.Command(t, "awk")
	thrice(t, script(`echo running >&2
i=0; while [ $i -lt 40 ] || [ ! -e finish ]; do [ $i -ge 40 ] || { echo $i; i=$((i+1)); }; sleep 0.02; done |
awk '{ s += $1; n++ } END { print n, s }' >"$SPOTWORKER_RESULT"`))
}

// TestHelpers: processes that their parents have left belong to the program, so that they continue
// with it.
func TestHelpers(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	const code = `
import os, time
os.system("(i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo $i >>helper; sleep 0.02; done; echo end >>helper) &")
if os.fork() == 0: # a double fork
    if os.fork() == 0:
        os.setsid()
        for i in range(40):
            open("daemon", "a").write(f"{i}\n")
            time.sleep(0.02)
        open("daemon", "a").write("end\n")
    os._exit(0)
os.wait()
print("running", flush=True)
def done(name):
    try: return open(name).read().endswith("end\n")
    except FileNotFoundError: return False
while not (os.path.exists("finish") and done("helper") and done("daemon")): time.sleep(0.02)
open(os.environ["SPOTWORKER_RESULT"], "w").write(open("helper").read() + open("daemon").read())
`
	thrice(t, program.Kind{Name: "helpers", Command: []string{need.Command(t, "python3"), "-c", code}, Snapshot: true})
}

// TestXZ freezes a program that nobody wrote for evictions, in the middle of its input.
func TestXZ(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	need.Command(t, "xz")
	thrice(t, script(`echo running
{ seq 1 60000; while [ ! -e finish ]; do sleep 0.02; done; seq 1 60000; } | xz -9 -T1 >data.xz
sha256sum <data.xz >"$SPOTWORKER_RESULT"`))
}

// TestPythonWithProcesses shares memory between processes.
func TestPythonWithProcesses(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	const code = `
import multiprocessing as mp, os, time
from multiprocessing import shared_memory
fork = mp.get_context("fork")

def count(name, at):
    memory = shared_memory.SharedMemory(name)
    for _ in range(40):
        memory.buf[at] += 1
        time.sleep(0.01)
    memory.close()

memory = shared_memory.SharedMemory(create=True, size=16)
all = [fork.Process(target=count, args=(memory.name, at)) for at in range(3)]
for p in all: p.start()
print("running", flush=True)
while not os.path.exists("finish"): time.sleep(0.02)
for p in all: p.join()
open(os.environ["SPOTWORKER_RESULT"], "w").write(f"{list(memory.buf[:3])} {[p.exitcode for p in all]}")
memory.close()
memory.unlink()
`
	thrice(t, program.Kind{Name: "processes", Command: []string{need.Command(t, "python3"), "-c", code}, Snapshot: true})
}

// TestUsers runs the program as users of its own: each machine has another user for the job.
// The program has no capability, before a restore and after it.
func TestUsers(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	const python = "/usr/bin/python3" // which every user may run
	if _, err := os.Stat(python); err != nil {
		need.Missing(t, python)
	}
	const code = `
import os, time
print("running", flush=True)
def files():
    return str(sorted(os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in range(20) if os.path.lexists(f"/proc/self/fd/{fd}")))
rights = lambda: "".join(line for line in open("/proc/self/status") if line.startswith(("Cap", "Uid", "Groups"))) + files()
before = rights()
while not os.path.exists("finish"): time.sleep(0.02)
after = rights()
try:
    os.kill(1, 9)
    open("/proc/1/environ").read()
    open("/proc/1/mem", "wb")
    attack = "possible"
except PermissionError:
    attack = "refused"
open(os.environ["SPOTWORKER_RESULT"], "w").write(("same\n" if after == before else "changed\n" + after) + before + attack)
`
	k := program.Kind{Name: "rights", Command: []string{python, "-c", code}, Snapshot: true}
	m := newMachine(t, usersIn(t, "61000-61009"))
	r := m.begin(k, nil, never)
	r.untilRunning(nil)
	state := r.evict()
	got := newMachine(t, usersIn(t, "61010-61019")).finish(k, state)
	if !strings.HasPrefix(got, "same\n") || !strings.HasSuffix(got, "refused") || !regexp.MustCompile(`(?m)^CapEff:\s+0+$`).MatchString(got) ||
		!regexp.MustCompile(`(?m)^CapPrm:\s+0+$`).MatchString(got) || !regexp.MustCompile(`(?m)^Groups:\s*(65500)?\s*$`).MatchString(got) {
		t.Errorf("rights of the program after a restore: %s\nwant the same as before, and none", got)
	}
}

// TestStopInAStart stops jobs while their programs are being started. Each continues elsewhere, or
// starts there; the stop is no fault of the machine.
func TestStopInAStart(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	const script = "echo running; while [ ! -e finish ]; do sleep 0.02; done; echo done >$SPOTWORKER_RESULT"
	k := program.Kind{Name: "short", Command: []string{"sh", "-c", script}, Snapshot: true}
	for delay := range 10 {
		m := newMachine(t, nil)
		r := m.begin(k, nil, never)
		time.Sleep(time.Duration(delay) * 8 * time.Millisecond) // a start takes some 50 ms
		r.stop(job.Evicted, time.Minute)
		if !job.IsInterrupted(r.err) || strings.Contains(m.log.String(), "this machine cannot run it") {
			t.Errorf("Run of a program that was stopped after %d ms = %v, want an interruption; log:\n%s", delay*8, r.err, m.log)
		}
		var state []byte
		if r.Latest().HasState() {
			state = r.state()
		}
		if got := newMachine(t, nil).finish(k, state); got != "done\n" {
			t.Errorf("result after a stop after %d ms = %q, want it done", delay*8, got)
		}
		r.Close()
	}
}

// TestSuddenDeath continues from the last periodic snapshot: files that were written later
// are gone, and at most an interval is done again.
func TestSuddenDeath(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	k := pythonKind(t)
	want := evicted(t, k, 0)
	r := newMachine(t, nil).begin(k, nil, 100*time.Millisecond)
	var states [][]byte
	for len(states) < 2 { // the second one follows the first
		before := r.Latest()
		r.until("a snapshot", func() bool { return r.Latest().HasState() && !r.Latest().SameState(before) })
		states = append(states, r.state())
	}
	r.stop(job.Cancelled, 0)
	r.Close()
	for i, state := range states {
		if got := newMachine(t, nil).finish(k, state); got != want {
			t.Errorf("from snapshot %d: result %q, want %q", i, got, want)
		}
	}
}

// TestKilledAtRandomMoments kills the program with everything below the worker at random
// moments: in a dump, between dumps, and in a restore. Each state that was reported leads to
// the right result.
func TestKilledAtRandomMoments(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	k := pythonKind(t)
	want := evicted(t, k, 0)
	var state []byte
	for i := range 20 {
		m := newMachine(t, nil)
		r := m.begin(k, state, time.Millisecond)
		time.Sleep(rand.N(400 * time.Millisecond))
		r.stop(job.Evicted, 0)
		if !job.IsInterrupted(r.err) {
			t.Fatalf("kill %d: Run = %v, want an interruption; log:\n%s", i, r.err, m.log)
		}
		if r.Latest().HasState() {
			state = r.state()
		}
		r.Close()
	}
	if got := newMachine(t, nil).finish(k, state); got != want {
		t.Errorf("after 20 kills: result %q, want %q", got, want)
	}
}

// TestRefusals dead-letters a program that cannot be frozen, with a reason in plain words.
func TestRefusals(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	python := need.Command(t, "python3")
	const connected = `
import socket, time
a = socket.socket(); a.bind(("127.0.0.1", 0)); a.listen()
b = socket.create_connection(a.getsockname()); c = a.accept()
time.sleep(100)
`
	const left = `
import ctypes, os, time
ctypes.CDLL(None).prctl(36, 0) # it takes no orphans any longer
if os.fork() == 0:
    if os.fork() == 0: time.sleep(100)
    os._exit(0)
os.wait()
time.sleep(100)
`
	shell := func(line string) []string { return []string{"/bin/sh", "-c", line + "; exec sleep 100"} }
	outside := filepath.Join(t.TempDir(), "outside")
	for name, row := range map[string]struct {
		command []string
		want    string
	}{
		"connection": {[]string{python, "-c", connected}, "network"},
		"private copy of a deleted file": {[]string{python, "-c", "import ctypes, os, time; f = open('x', 'w+b'); f.truncate(4096); " +
			"ctypes.CDLL(None).mmap(None, 4096, 3, 2, f.fileno(), 0); f.close(); os.unlink('x'); time.sleep(100)"}, "a private copy of"},
		"watched files": {[]string{python, "-c", "import ctypes, time; libc = ctypes.CDLL(None); " +
			"libc.inotify_add_watch(libc.inotify_init(), b'/usr', 0xfff); time.sleep(100)"}, "watches files outside"},
		"process outside":        {[]string{python, "-c", left}, "has left the program's tree of processes"},
		"outside":                {shell("exec 3>" + outside), outside + " open for writing, which is not in the job's folder"},
		"link out of the folder": {shell("ln -s /usr/bin bin"), "work/bin -> /usr/bin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, nil)
			err := m.refusal(program.Kind{Name: "refused", Command: row.command, Snapshot: true})
			if !job.IsPermanent(err) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("Run = %v, want a permanent error with %q; log:\n%s", err, row.want, m.log)
			}
		})
	}
}

// refusal runs a program until its first snapshot is refused, and returns the error of the job. It runs
// the program again where a busy machine was slow to start it, so that the snapshot came too early.
func (m *machine) refusal(k program.Kind) error {
	m.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		r := m.begin(k, nil, never)
		for !r.Latest().HasState() && time.Now().Before(end) {
			select {
			case <-r.done:
				return r.err
			case <-time.After(5 * time.Millisecond):
			}
		}
		r.stop(job.Cancelled, 0)
		r.Close()
	}
	m.t.Fatalf("the program was not refused within %s; log:\n%s", patience, m.log)
	return nil
}

// TestLaterRefusal keeps the last snapshot of a program that cannot be frozen any longer.
func TestLaterRefusal(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	const code = `
import os, time
print("running", flush=True)
while not os.path.exists("finish"): time.sleep(0.02)
open(os.environ["SPOTWORKER_RESULT"], "w").write(str(os.listdir(".").count("link")))
`
	k := program.Kind{Name: "later", Command: []string{need.Command(t, "python3"), "-c", code}, Snapshot: true}
	m := newMachine(t, nil)
	r := m.begin(k, nil, 100*time.Millisecond)
	r.until("a snapshot", func() bool { return r.Latest().HasState() })
	if err := os.Symlink("/usr/bin", filepath.Join(m.work(), "link")); err != nil {
		t.Fatal(err)
	}
	r.until("a refusal", func() bool { return strings.Contains(m.log.String(), "no snapshot of the program") })
	state := r.evict()
	if got := newMachine(t, nil).finish(k, state); got != "0" {
		t.Errorf("the program found %s links, want none: the snapshot is older", got)
	}
}

// TestCheckOfTheMachine finds at a worker's start what a machine lacks.
func TestCheckOfTheMachine(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	m := newMachine(t, nil)
	plain, frozen := []program.Kind{{Name: "plain"}}, []program.Kind{{Name: "plain"}, {Name: "frozen", Snapshot: true}}
	if err := program.CheckSnapshots(t.Context(), frozen, m.scratch); err != nil {
		t.Errorf("CheckSnapshots = %v", err)
	}
	old := t.TempDir()
	fake := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(old, "criu"), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", old)
	for want, text := range map[string]string{
		"criu 3.17.1 is too old": "echo Version: 3.17.1",
		"Kernel too old for us": `[ "$1" = --version ] && { echo Version: 4.1; exit; }
echo "Error (criu/cr-check.c:1): Kernel too old for us"; exit 1`,
	} {
		fake(text)
		if err := program.CheckSnapshots(t.Context(), frozen, m.scratch); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CheckSnapshots = %v, want %q", err, want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if err := program.CheckSnapshots(t.Context(), frozen, m.scratch); err == nil || !strings.Contains(err.Error(), "there is no criu") {
		t.Errorf("CheckSnapshots without criu = %v", err)
	}
	if err := program.CheckSnapshots(t.Context(), plain, m.scratch); err != nil {
		t.Errorf("CheckSnapshots without a kind = %v", err)
	}
}

// TestOtherMachine leaves a snapshot of another machine to a worker there, without a failure. A machine
// whose processor had fewer features is none.
func TestOtherMachine(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	m := newMachine(t, nil)
	r := m.begin(pythonKind(t), nil, never)
	r.untilRunning(nil)
	state := r.evict()
	const kernel, features = `"kernel":"`, `"features":"`
	first := func(fact string) *byte { return &state[bytes.Index(state, []byte(fact))+len(fact)] }
	for fact, want := range map[string]string{kernel: "the kernel was", features: "which this processor lacks"} {
		was := *first(fact)
		*first(fact) = was + 1
		m := newMachine(t, nil)
		r := m.begin(pythonKind(t), state, never)
		r.until("the difference is logged", func() bool { return strings.Contains(m.log.String(), want) })
		r.stop(job.Evicted, time.Minute)
		if !job.IsUnavailable(r.err) || r.Latest().HasState() {
			t.Errorf("Run = %v, want it to be unavailable here", r.err)
		}
		*first(fact) = was
	}
	*first(features) = 'A' // no bits
	if got := newMachine(t, nil).finish(pythonKind(t), state); got == "" {
		t.Error("the program has no result after it continued on a processor with more features")
	}
}

// TestOtherScript leaves a snapshot whose script has other text here to a machine with the same
// one: a shell would continue in the middle of it.
func TestOtherScript(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	name := filepath.Join(t.TempDir(), "script")
	write := func(word string) {
		t.Helper()
		text := "echo running; while [ ! -e finish ]; do sleep 0.02; done; echo " + word + " >$SPOTWORKER_RESULT\n"
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := program.Kind{Name: "script", Command: []string{"/bin/sh", name}, Snapshot: true}
	write("old")
	r := newMachine(t, nil).begin(k, nil, never)
	r.untilRunning(nil)
	state := r.evict()
	write("new")
	m := newMachine(t, nil)
	r = m.begin(k, state, never)
	r.until("the difference is logged", func() bool { return strings.Contains(m.log.String(), name+" has other content here") })
	r.stop(job.Evicted, time.Minute)
	if !job.IsUnavailable(r.err) || r.Latest().HasState() {
		t.Errorf("Run = %v, want it to be unavailable here", r.err)
	}
}

// TestDamagedImage: a snapshot with a damaged image is dead-lettered at once with its cause, and criu
// does not see it.
func TestDamagedImage(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	m := newMachine(t, nil)
	r := m.begin(pythonKind(t), nil, never)
	r.untilRunning(nil)
	state := r.evict()
	i := bytes.Index(state, []byte("\x19CVT")) // a magic number of criu's images
	state[i] ^= 0x55
	m = newMachine(t, nil)
	r = m.begin(pythonKind(t), state, never)
	r.wait()
	if !job.IsPermanent(r.err) || !strings.Contains(r.err.Error(), "has other content than was written") || r.Latest().HasState() {
		t.Errorf("Run of a damaged image = %q, %v, want a permanent error with its cause; log:\n%s", r.result, r.err, m.log)
	}
}
