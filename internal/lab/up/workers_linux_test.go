package up

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/labtest"
)

// TestWorkers: lab up starts two real workers. When both are evicted, a worker of the VMs that
// replace them resumes their job. At the end the workers hand over a job, and no process is left.
func TestWorkers(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	pids, kinds := filepath.Join(folder, "pids"), filepath.Join(folder, "kinds.json")
	program := `if [ -n "${SPOTWORKER_RESTORE-}" ]; then cp "$SPOTWORKER_RESTORE" "$SPOTWORKER_RESULT"; exit; fi
echo half >"$TMPDIR/new" && mv "$TMPDIR/new" "$SPOTWORKER_CHECKPOINT"
echo $$ >>"$PIDS"
exec sleep 600`
	text := `{"kinds": {"half": {"command": ["sh", "-c", ` + jsonText(t, program) + `], "environment": {"PIDS": ` +
		jsonText(t, pids) + `}}}}`
	if err := os.WriteFile(kinds, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	programs, _ := labtest.Programs(t)
	c := upOnAnyPorts()
	c.Workers, c.KindsFile = 2, kinds
	out := &labtest.Output{}
	u := newUp(c, out)
	if err := u.open(); err != nil {
		t.Fatal(err)
	}
	if err := u.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(u.openWorkers(), u.startWorkers(t.Context())); err != nil {
		t.Fatal(err)
	}
	serve := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); u.serve(ctx) }()
		return func() { cancel(); <-done }
	}

	stop := serve()
	put := func(jobs int) (started []string) {
		cmd := exec.CommandContext(t.Context(), programs.Producer, "put", "--kind", "half")
		cmd.Env = append(os.Environ(), lab.ConnectionStringVariable+"="+u.local.ConnectionString)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for len(started) < jobs {
			time.Sleep(10 * time.Millisecond)
			text, _ := os.ReadFile(pids)
			started = strings.Fields(string(text))
		}
		return started
	}
	logged := func(vm, message string) bool {
		text, err := os.ReadFile(filepath.Join(u.workers.logs, vm+".log"))
		return err == nil && strings.Contains(string(text), `"msg":"`+message+`"`)
	}
	put(1)
	for !logged("spot_1", "job started") && !logged("spot_2", "job started") {
		time.Sleep(10 * time.Millisecond)
	}
	busy, idle := "spot_1", "spot_2"
	if logged(idle, "job started") {
		busy, idle = idle, busy
	}
	for _, eviction := range [][2]string{{idle, "has released 0 jobs,"}, {busy, "has released 1 job,"}} { // it does not go to the other
		if a := u.control.give(t.Context(), actionEvict, eviction[0]); a.err != nil {
			t.Fatal(a.err)
		}
		untilSaid(t, out, eviction[1])
	}
	stop()
	processes := u.workers.fleet.Running()
	u.observe(time.Now().Add(30 * time.Second))
	stop = serve()
	untilSaid(t, out, "spot_1 has been evicted, and its worker is killed. spot_")
	untilSaid(t, out, "spot_4 takes jobs")
	for !logged("spot_3", "job committed") && !logged("spot_4", "job committed") {
		time.Sleep(10 * time.Millisecond)
	}

	jobs := put(2)
	processes = append(processes, u.workers.fleet.Running()...)
	stop()
	if err := u.endWorkers(); err != nil {
		t.Errorf("endWorkers = %v, want nil: the workers drain", err)
	}
	for _, vm := range processes {
		wantGone(t, strconv.Itoa(vm.PID()))
	}
	wantGone(t, jobs...)
	if err := u.close(); err != nil {
		t.Error(err)
	}
	for _, folder := range []string{u.folder, u.workers.logs} {
		if _, err := os.Stat(folder); !os.IsNotExist(err) {
			t.Errorf("%s is left behind, %v", folder, err)
		}
	}
}

// untilSaid waits for words that the narrator may break into lines.
func untilSaid(t *testing.T, out *labtest.Output, words string) {
	t.Helper()
	out.Until(t, strings.ReplaceAll(regexp.QuoteMeta(words), " ", `\s+`))
}

// fakeWorkers returns the configuration of a lab up whose workers are a shell script that knows the
// name of its VM.
func fakeWorkers(t *testing.T, script string) Config {
	t.Helper()
	c := upOnAnyPorts()
	c.Workers, c.Worker = 2, filepath.Join(t.TempDir(), "worker")
	script = "#!/bin/sh\n" + `for flag; do case $flag in --metadata-endpoint=*) vm=${flag##*/} ;; esac; done
ready() { echo '{"msg": "state changed", "to": "process"}' >&2; }
stay() { trap 'exit 0' TERM; ready; while :; do sleep 0.1; done; }
` + script
	if err := os.WriteFile(c.Worker, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWorkerThatCannotStart: lab up ends with what the worker said, and keeps the logs.
func TestWorkerThatCannotStart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c := fakeWorkers(t, `[ $vm = spot_1 ] || stay
echo 'worker: no storage' >&2; exit 78`)
	out := &labtest.Output{}
	err := Run(t.Context(), c, out)
	if want := "worker on spot_1 ended before it took jobs: exit status 78, and its log ends with: worker: no storage"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("Run = %v, want %q", err, want)
	}
	if kept, _ := filepath.Glob(filepath.Join(os.TempDir(), "*", "spot_?.log")); len(kept) != 2 {
		t.Errorf("logs kept: %q, want those of two workers that were started once", kept)
	}
}

// TestWorkerThatEnds: its VM is replaced by another. A worker that ends before it takes jobs is not
// replaced.
func TestWorkerThatEnds(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	end := filepath.Join(t.TempDir(), "end")
	c := fakeWorkers(t, `[ $vm != spot_3 ] || { echo '{"msg": "no", "error": "disk"}' >&2; exit 1; }
[ $vm != spot_2 ] || stay
ready
while ! [ -e `+end+` ]; do sleep 0.01; done
printf 'panic: boom\n\ngoroutine 1 [running]:\n' >&2
exit 2`)
	r := startUp(t, c)
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	untilSaid(t, r.out, "spot_1 ended unexpectedly: exit status 2, and its log ends with: panic: boom. spot_3 replaces")
	untilSaid(t, r.out, "spot_3 ended before it took jobs: exit status 1, and its log ends with: no: disk.")
	if _, err := Evict(t.Context(), r.port, "spot_3"); err != nil {
		t.Errorf("the VM without a worker cannot be evicted: %v", err)
	}
	if strings.Contains(r.out.String(), "spot_4") {
		t.Errorf("a worker that ends at once is started again:\n%s", r.out)
	}
}

// TestImpatience: a second Ctrl-C kills the workers.
func TestImpatience(t *testing.T) {
	c := fakeWorkers(t, `trap '' TERM; ready; while :; do sleep 1; done`)
	ctx, cancel := context.WithCancel(t.Context())
	c.Patience = func() (context.Context, context.CancelFunc) {
		impatient, cancel := context.WithCancel(context.Background())
		cancel()
		return impatient, cancel
	}
	out, done := &labtest.Output{}, make(chan error, 1)
	go func() { done <- Run(ctx, c, out) }()
	out.Until(t, `bin/lab withdraw`)
	cancel()
	if err := <-done; err != nil || !strings.Contains(out.String(), "were killed") {
		t.Errorf("Run = %v and says\n%s\nwant workers that were killed", err, out)
	}
}
