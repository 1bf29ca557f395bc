//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/labtest"
)

// place is a local Azure, and the folder of a terminal.
type place struct {
	t      *testing.T
	local  *lab.Local
	folder string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	local, err := lab.StartLocal(lab.LocalConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = local.Close() })
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", local.ConnectionString)
	p := &place{t, local, t.TempDir()}
	t.Chdir(p.folder)
	return p
}

// worker starts a worker process on a VM of its own.
func (p *place) worker(vm string, more ...string) *labtest.Output {
	p.t.Helper()
	p.local.Metadata.AddVM(imds.VM{Name: vm})
	log := &labtest.Output{}
	cmd := p.process("worker", append(more, "--commands", "--concurrency=8", "--scratch="+p.t.TempDir(), "--listen=127.0.0.1:0",
		"--metadata-endpoint="+p.local.Endpoint(vm))...)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	return log
}

// process is this test's binary as a program.
func (p *place) process(name string, args ...string) *exec.Cmd {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), programVariable+"="+name, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// ran is what a run of producer printed, and its exit code.
type ran struct {
	out, err string
	code     int
}

// produce runs producer in this process.
func produce(args ...string) ran {
	var out, errs bytes.Buffer
	err := run(args, strings.NewReader(""), &out, &errs)
	if status, ok := errors.AsType[*cli.StatusError](err); err != nil && (!ok || status.Err != nil) {
		fmt.Fprintf(&errs, "producer: %v\n", err)
	}
	return ran{out.String(), errs.String(), cli.Code(err)}
}

func awaitThat(t *testing.T, what string, holds func() bool) {
	t.Helper()
	const patience = 2 * time.Minute // a busy machine is slow, not stuck
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// TestRunAgain: a command that runs again under its id prints what it prints now, and nothing of before.
func TestRunAgain(t *testing.T) {
	p := newPlace(t)
	p.worker("spot_1")
	for i, row := range []struct {
		args []string
		out  string
		code int
	}{
		{[]string{"echo one; echo log one >&2"}, "one\n", 0},
		{[]string{"echo two; echo log two >&2; exit 4"}, "two\n", 4},
		{[]string{"echo three; echo log three >&2"}, "three\n", 0},
	} {
		got := produce(append([]string{"run", "--again", "--id", "x", "--", "sh", "-c"}, row.args...)...)
		logs := strings.Count(got.err, "\nlog ") + strings.Count(got.err[:min(4, len(got.err))], "log ")
		if got.out != row.out || got.code != row.code || logs != 1 {
			t.Errorf("run %d = %+v, want %+v and its log alone", i+1, got, row)
		}
	}
	if got := produce("run", "--id", "x", "--", "sh", "-c", "echo three; echo log three >&2"); got.out != "three\n" || got.code != 0 {
		t.Errorf("without --again: %+v, want the outcome of the last run", got)
	}
}

// TestRunEvicted: a command that is evicted in the middle resumes on another VM. Its standard
// output is printed once, and its exit code returned.
func TestRunEvicted(t *testing.T) {
	p := newPlace(t)
	p.worker("spot_1")
	ready := filepath.Join(p.folder, "ready")
	ended := make(chan ran, 1)
	go func() {
		ended <- produce("run", "--env", "READY="+ready, "--", "sh", "-c", `
n=1; [ -z "$SPOTWORKER_RESTORE" ] || n=$(cat "$SPOTWORKER_RESTORE")
trap 'echo $n >new; mv new "$SPOTWORKER_CHECKPOINT"; exit 75' TERM
while [ $n -le 6 ]; do
  echo "step $n"; echo "log $n" >&2; n=$((n+1))
  [ $n != 4 ] || [ -n "$SPOTWORKER_RESTORE" ] || { : >"$READY"; while :; do sleep 0.02; done; }
done
printf end; exit 3`)
	}()
	awaitThat(t, "the command works", func() bool { _, err := os.Stat(ready); return err == nil })
	if _, err := p.local.Metadata.SimulateEviction("spot_1"); err != nil {
		t.Fatal(err)
	}
	p.worker("spot_2")
	got, want := <-ended, "step 1\nstep 2\nstep 3\nstep 4\nstep 5\nstep 6\nend"
	if got.out != want || got.code != 3 || !strings.Contains(got.err, "log 1\n") || !strings.Contains(got.err, "log 6\n") ||
		!strings.Contains(got.err, "exited with code 3\n") {
		t.Errorf("run = %+v, want %q, its log and exit code 3", got, want)
	}
}

// TestRunMany: fifty producers bring the same files at once, which are stored once.
func TestRunMany(t *testing.T) {
	p := newPlace(t)
	if err := errors.Join(os.MkdirAll("tools/empty", 0o755), os.WriteFile("tools/tool", []byte("#!/bin/sh\necho tool $1 $(ls)\n"), 0o755),
		os.Symlink("tool", "tools/link"), os.WriteFile("a b", bytes.Repeat([]byte("x"), 5<<20), 0o644)); err != nil {
		t.Fatal(err)
	}
	p.worker("spot_1")
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			n := strconv.Itoa(i)
			got := produce("run", "-q", "--with", "tools", "--with", "a b=in/b", "--", "sh", "-c",
				`cd tools && ./link "$1" && wc -c <../in/b && test -d empty`, "", n)
			if want := "tool " + n + " empty link tool\n5242880\n"; got != (ran{out: want}) {
				t.Errorf("run = %+v, want %q", got, want)
			}
		})
	}
	all.Wait()
	if blobs := p.local.Storage.Blobs("spotworker-outputs"); len(blobs) != 2 {
		t.Errorf("%d blobs of 50 runs, want one for each of two contents", len(blobs))
	}
}

// TestRunWithGPUs: two GPUs are never given to two commands at once, and commands without any run beside them.
func TestRunWithGPUs(t *testing.T) {
	p := newPlace(t)
	kinds := `{"gpus": [4, 5], "kinds": {"unused": {"command": ["sh"]}}}`
	if err := errors.Join(os.WriteFile("kinds.json", []byte(kinds), 0o600), os.Mkdir("held", 0o700)); err != nil {
		t.Fatal(err)
	}
	p.worker("spot_1", "--kinds-file=kinds.json")
	held := filepath.Join(p.folder, "held")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			got := produce("run", "-q", "--gpus=1", "--env=HELD="+held, "--", "sh", "-c",
				`mkdir "$HELD/$CUDA_VISIBLE_DEVICES" && sleep 0.1 && rmdir "$HELD/$CUDA_VISIBLE_DEVICES" && echo "$NVIDIA_VISIBLE_DEVICES"`)
			if got.out != "4\n" && got.out != "5\n" {
				t.Errorf("run %d = %+v, want a GPU of its own", i, got)
			}
		})
	}
	all.Go(func() {
		if got := produce("run", "-q", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"); got != (ran{out: "-1\n"}) {
			t.Errorf("run without GPUs = %+v, want none visible", got)
		}
	})
	all.Wait()
}

// TestRunEnds: the ends of a command, as a script sees them.
func TestRunEnds(t *testing.T) {
	p := newPlace(t)
	log := p.worker("spot_1")
	if err := errors.Join(os.MkdirAll("brought/output", 0o700), os.WriteFile("brought/output/old", []byte("old"), 0o600),
		os.WriteFile("brought/output/more", []byte("more"), 0o600),
		os.Chtimes("brought/output/old", time.Unix(0, 0), time.Unix(0, 0))); err != nil {
		t.Fatal(err)
	}
	type row struct {
		args []string
		want ran // the words of err, within
	}
	check := func(row row) {
		got := produce(append([]string{"run"}, row.args...)...)
		if got.code != row.want.code || !strings.HasPrefix(got.out, row.want.out) || row.want.out == "" && got.out != "" ||
			!strings.Contains(got.err, row.want.err) {
			t.Errorf("run %q = %.300q, want %+v", row.args, fmt.Sprintf("%+v", got), row.want)
		}
		if row.want.code == 5 && !strings.HasSuffix(got.out, "\n300000\n") {
			t.Errorf("standard output of a failed command has %d bytes, want all", len(got.out))
		}
	}
	var all sync.WaitGroup
	for _, row := range []row{
		{[]string{"--", "printf", `%s|`, "a b", "", `"$HOME"`, "ü"}, ran{`a b||"$HOME"|ü|`, "", 0}},
		{[]string{"sh", "-c", `printf 'a\r\n\000\377'`}, ran{"a\r\n\x00\xff", "", 0}},
		{[]string{"--", "sh", "-c", "seq 300000; exit 5"}, ran{"1\n", "exited with code 5", 5}},
		{[]string{"--", "sh", "-c", "kill -SEGV $$"}, ran{"", "signal SIGSEGV", 139}},
		{[]string{"--", "no-such-program"}, ran{"", "there is no program no-such-program", 127}},
		{[]string{"--outputs=*.png", "--fetch=got", "--", "sh", "-c", "echo a >a.png; echo b >output/b"}, ran{"", "", 0}},
		{[]string{"--with=brought=.", "--fetch=got", "--", "sh", "-c",
			"cat output/old; install /bin/sh output/run; echo >>output/more"}, ran{"old", "", 0}},
		{[]string{"--fetch=got", "--", "sh", "-c", "rm -r output; mkdir output; echo again >output/again"}, ran{"", "", 0}},
		{[]string{"--fetch=nothing", "--", "true"}, ran{"", "no outputs to fetch", 0}},
		{[]string{"--with=brought=a/b", "--with=brought/output/old=a/b/output/old/c", "--", "true"}, ran{"", "not a directory", 125}},
		{[]string{"--", "echo", "\xff"}, ran{"", "is not UTF-8", 78}},
		{[]string{"--retries=1", "--", "sh", "-c", `[ "$SPOTWORKER_ATTEMPT" = 2 ] && echo second`}, ran{"second\n", "", 0}},
		{[]string{"--with=missing", "--", "true"}, ran{"", "missing: no such file", 125}},
	} {
		all.Go(func() { check(row) })
	}
	for _, row := range []row{
		{[]string{"--detach", "--id=later", "--", "sh", "-c", "echo later"}, ran{"later\n", "", 0}},
		{[]string{"--id=later", "--", "sh", "-c", "echo later"}, ran{"later\n", "", 0}},
		{[]string{"--id=later", "--", "true"}, ran{"", "the id was used for other work", 125}},
	} {
		check(row)
	}
	all.Wait()
	if _, err := os.Stat("got/old"); err == nil {
		t.Error("a file that the job brought and left alone is an output")
	}
	if info, err := os.Stat("got/run"); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("fetched program = %v, %v, want that it is executable", info, err)
	}
	for name, want := range map[string]string{"got/a.png": "a\n", "got/b": "b\n", "got/more": "more\n", "got/again": "again\n"} {
		if data, err := os.ReadFile(name); string(data) != want || err != nil {
			t.Errorf("output %s = %q, %v, want %q", name, data, err, want)
		}
	}
	for payload, want := range map[string]string{`{}`: "argv is empty", `{"argv":["a\u0000"]}`: "has a NUL",
		`{"argv":["true"],"environment":{"SPOTWORKER_JOB_ID":"x"}}`: "is the worker's"} {
		got := produce("put", "--wait", "--kind=command", "--payload="+payload)
		if got.code != 1 || !strings.Contains(got.err, "poison: the message has no command that can run: ") || !strings.Contains(got.err, want) {
			t.Errorf("job of %s = %+v, want poison with %q", payload, got, want)
		}
	}
	if strings.Contains(log.String(), "circuit breaker open") {
		t.Error("failing commands opened the circuit breaker")
	}
}

// TestRunInterrupted: Ctrl-C cancels the command.
func TestRunInterrupted(t *testing.T) {
	p := newPlace(t)
	log := p.worker("spot_1")
	ready := filepath.Join(p.folder, "ready")
	var out, errs labtest.Output
	cmd := p.process("producer", "run", "--env", "READY="+ready, "--", "sh", "-c", `: >"$READY"; while :; do sleep 0.02; done`)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitThat(t, "the command works", func() bool { _, err := os.Stat(ready); return err == nil })
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitCancelled || !strings.Contains(errs.String(),
		"was cancelled: Ctrl-C in producer run") {
		t.Errorf("exit code = %d, %s, want %d", code, errs.String(), exitCancelled)
	}
	log.Until(t, "job was cancelled; stopping it")
}

// TestRunWithoutAWorker: it is said that no worker takes the command, and Ctrl-C takes the job back.
func TestRunWithoutAWorker(t *testing.T) {
	p := newPlace(t)
	var errs labtest.Output
	cmd := p.process("producer", "run", "--", "true")
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	errs.Until(t, "no worker is alive .* Start a worker with --commands")
	_ = cmd.Process.Signal(os.Interrupt)
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != exitCancelled {
		t.Errorf("exit code = %d, %s, want %d", cmd.ProcessState.ExitCode(), errs.String(), exitCancelled)
	}
}
