//go:build unix

package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/spotworker/spotworker/internal/program/printed"
	"github.com/spotworker/spotworker/internal/program/tree"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

func TestResult(t *testing.T) {
	b := setup(t)
	w := b.run(b.kind("echo"), `{"n":1}`, nil)
	if string(w.result) != `{"n":1}` || w.err != nil {
		t.Errorf("Run = %q, %v, want the payload as the result", w.result, w.err)
	}
	w = b.run(b.kind("exit", "CODE=0"), "", nil)
	if w.result != nil || w.err != nil {
		t.Errorf("Run without a result = %q, %v, want done with none", w.result, w.err)
	}
}

// TestEnvironment: a program gets the variables of the contract, and from the worker's
// environment only the variables that its kind names.
func TestEnvironment(t *testing.T) {
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountKey=secret")
	t.Setenv("IDENTITY_HEADER", "secret")
	t.Setenv("NOTIFY_SOCKET", "/run/secret")
	t.Setenv("SPOTWORKER_DATA_CONTAINER", "secret")
	t.Setenv("ASKED_FOR", "yes")
	t.Setenv("LANG", "de_DE.UTF-8")
	b := setup(t)
	k := b.kind("environment", "OMP_NUM_THREADS=2")
	k.Pass, k.Command = []string{"ASKED_FOR", "NOT_THERE"}, append(k.Command, "--fast", "$HOME")
	w := b.run(k, "", nil)
	var got struct {
		Environment, Arguments []string
		Directory              string
	}
	if err := json.Unmarshal(w.result, &got); err != nil {
		t.Fatalf("%v in %q, %v", err, w.result, w.err)
	}
	vars := map[string]string{}
	for _, variable := range got.Environment {
		name, text, _ := strings.Cut(variable, "=")
		vars[name] = text
		if strings.Contains(text, "secret") {
			t.Errorf("the program sees %s", variable)
		}
	}
	for name, want := range map[string]string{
		envJobID: "job-1", envKind: "test", envAttempt: "1", "ASKED_FOR": "yes", "OMP_NUM_THREADS": "2",
		"LANG": "de_DE.UTF-8", "PATH": os.Getenv("PATH"), "HOME": got.Directory,
	} {
		if vars[name] != want {
			t.Errorf("%s = %q, want %q", name, vars[name], want)
		}
	}
	for _, name := range []string{envPayload, envCheckpoint, envResult, envProgress, envStop, "TMPDIR"} {
		if !filepath.IsAbs(vars[name]) {
			t.Errorf("%s = %q, want a path", name, vars[name])
		}
	}
	for _, name := range []string{envRestore, "NOT_THERE"} {
		if text, ok := vars[name]; ok {
			t.Errorf("%s = %q, want it absent", name, text)
		}
	}
	if want := []string{"--fast", "$HOME"}; !slices.Equal(got.Arguments, want) {
		t.Errorf("arguments = %q, want %q as they stand", got.Arguments, want)
	}
}

// TestRestore: a recorded checkpoint is restored as the file or folder that it was.
func TestRestore(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("in a folder"), 0o600); err != nil {
		t.Fatal(err)
	}
	linked := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(linked, "step-1"), []byte("behind a link"), 0o600),
		os.Symlink("step-1", filepath.Join(linked, "a"))); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name  string
		saved func(t *testing.T) *job.Progress
		want  string // or with a "!" part of the error
	}{
		{"fresh", func(*testing.T) *job.Progress { return nil }, "fresh"},
		{"a file", func(*testing.T) *job.Progress { return &job.Progress{State: []byte("in a file"), Version: stateFile} }, "in a file"},
		{"an empty file", func(*testing.T) *job.Progress { return &job.Progress{State: []byte{}, Version: stateFile} }, ""},
		{"a folder", func(t *testing.T) *job.Progress { return folderState(t, dir) }, "in a folder"},
		{"a folder with links", func(t *testing.T) *job.Progress { return folderState(t, linked) }, "behind a link"},
		{"a damaged folder", func(t *testing.T) *job.Progress {
			p := folderState(t, dir)
			p.State = p.State[:len(p.State)-1]
			return p
		}, "!the recorded checkpoint cannot be restored: archive is damaged"},
		{"another format", func(*testing.T) *job.Progress { return &job.Progress{State: []byte("?"), Version: 9} }, "!version 9"},
		{"a stream that breaks", func(*testing.T) *job.Progress {
			return &job.Progress{Version: stateFile, Stream: func() (io.ReadCloser, error) { return nil, io.ErrClosedPipe }}
		}, "!closed pipe"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			w := b.run(b.kind("restores"), "", row.saved(t))
			want, fails := strings.CutPrefix(row.want, "!")
			switch {
			case fails && (w.err == nil || !strings.Contains(w.err.Error(), want)):
				t.Errorf("Run = %v, want an error with %q", w.err, want)
			case !fails && (w.err != nil || string(w.result) != want):
				t.Errorf("Run = %q, %v, want %q", w.result, w.err, want)
			}
		})
	}
}

// folderState is a folder as it is recorded.
func folderState(t *testing.T, dir string) *job.Progress {
	t.Helper()
	k := collector{from: filepath.Join(t.TempDir(), "checkpoint"), dir: t.TempDir(), limits: roomy, log: slog.New(slog.DiscardHandler)}
	if err := os.CopyFS(k.from, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	p, err := k.collect(t.Context())
	if err != nil || p.Version != stateFolder {
		t.Fatalf("take = %+v, %v, want a folder", p, err)
	}
	return p
}

// TestStopAndResume is the whole contract: a program that is stopped repeatedly has the
// same result as an undisturbed program.
func TestStopAndResume(t *testing.T) {
	b := setup(t)
	k := b.kind("count", "N=40")
	var saved *job.Progress
	for run := 1; ; run++ {
		if k.Environment["MOST"] = "10"; run > 3 { // so that no run but the last can reach the end
			delete(k.Environment, "MOST")
		}
		w := b.begin(k, "", saved)
		if run <= 3 {
			from := stateOf(t, saved)
			b.until("progress", func() bool { return w.Latest().HasState() && stateOf(t, w.Latest()) != from })
			w.stop(job.Evicted, time.Hour) // far more than wait allows
		}
		w.wait(t)
		if w.err == nil {
			if want := "780"; string(w.result) != want || run != 4 {
				t.Errorf("result of run %d = %s, want %s in run 4", run, w.result, want)
			}
			return
		}
		if !job.IsInterrupted(w.err) || run > 3 {
			t.Fatalf("run %d = %v, want an interruption", run, w.err)
		}
		saved = &job.Progress{State: []byte(stateOf(t, w.Latest())), Version: w.Latest().Version}
	}
}

// TestStops: what programs do when they are stopped, and the outcome.
func TestStops(t *testing.T) {
	const long = time.Hour // a wait for it would end in vain: it is far more than the tests' patience
	for _, row := range []struct {
		role         string
		left         time.Duration // until the handler must be gone
		least        time.Duration // that it takes
		result, last string        // "!" for an interruption; the last state
	}{
		{"careless", long, 0, "!exited with code 0", ""},
		{"unaware", long, 0, "!signal SIGTERM", ""},
		{"late result", long, 0, "whole", ""},
		{"saves", long, 0, "!exited with code 75", `{"reason":"evicted","seconds_left":35`},
		{"leaves the stop to its child", long, 0, "!exited with code 75", "the child was told"},
		{"saves a folder", long, 0, "!exited with code 75", "at the stop"},
		{"stubborn", 2 * time.Second, 1700 * time.Millisecond, "!did not stop in time and was killed", "first"},
		{"stubborn", 0, 0, "!killed", "first"},
	} {
		t.Run(row.role+" "+row.left.String(), func(t *testing.T) {
			b := setup(t)
			w := b.begin(b.kind(row.role), "", nil)
			b.until("the program is ready", func() bool {
				ready, _ := filepath.Glob(filepath.Join(b.scratch.Parent(), "*", "job-*", "work", "ready"))
				return len(ready) > 0 || w.Latest() != nil
			})
			stopped := time.Now()
			w.stop(job.Evicted, row.left)
			w.wait(t)
			if took := time.Since(stopped); took < row.least {
				t.Errorf("stop took %s, want at least %s", took, row.least)
			}
			want, interrupted := strings.CutPrefix(row.result, "!")
			switch {
			case interrupted && (!job.IsInterrupted(w.err) || !strings.Contains(w.err.Error(), want)):
				t.Errorf("Run = %q, %v, want an interruption with %q", w.result, w.err, want)
			case !interrupted && (w.err != nil || string(w.result) != want):
				t.Errorf("Run = %q, %v, want %q", w.result, w.err, want)
			}
			const late = "program did not end after its signal and was killed: its work since the last checkpoint is lost; have it save and " +
				"exit with code 75, or set its stop_signal"
			if told := len(b.log.find(late)) == 1; told != (row.role == "stubborn") {
				t.Errorf("the log tells of a late program: %t", told)
			}
			if got := stateOf(t, w.Latest()); !strings.Contains(got, row.last) || row.last == "" && got != "" {
				t.Errorf("last state = %q, want %q", got, row.last)
			}
		})
	}
}

// TestSignalsFromElsewhere: a program that a signal from elsewhere ends shortly before
// the notice arrives has not failed.
func TestSignalsFromElsewhere(t *testing.T) {
	for _, row := range []struct {
		name, role, variable string
		grace                time.Duration // for a notice
		notice               bool
	}{
		{"killed, then a notice", "signal", "SIGNAL=9", time.Hour, true},
		{"terminated, then a notice", "signal", "SIGNAL=15", time.Hour, true},
		{"killed, no notice", "signal", "SIGNAL=9", 500 * time.Millisecond, false},
		{"a shell that tells of it, then a notice", "exit", "CODE=143", time.Hour, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			h := b.brief(b.kind(row.role, row.variable))
			h.noticeGrace = row.grace
			w := b.beginHandler(h, job.New(job.Spec{ID: "job-1", Kind: "test", Attempt: 1}, nil))
			if row.notice {
				time.Sleep(time.Second)
				select {
				case <-w.done:
					t.Errorf("Run = %v before the notice, want it to wait for one", w.err)
				default:
				}
				w.stop(job.Evicted, time.Hour)
			}
			w.wait(t) // which is less patient than the grace
			if job.IsInterrupted(w.err) != row.notice || w.err == nil {
				t.Errorf("Run = %v, want an interruption: %t", w.err, row.notice)
			}
			if all := time.Since(w.began); all < row.grace && !row.notice {
				t.Errorf("failed after %s, want %s of waiting for a notice", all, row.grace)
			}
		})
	}
}

// TestWhatGoesWrong: each fault ends in an error that names it, affects no other job, and
// leaves nothing behind.
func TestWhatGoesWrong(t *testing.T) {
	for _, row := range []struct {
		role      string
		variables []string
		change    func(*Kind)
		permanent bool
		says      string
	}{
		{"exit", []string{"CODE=3"}, nil, false, "the command exited with code 3"},
		{"exit", []string{"CODE=1", "COMPLAINT=no such frame\n"}, nil, false, "exited with code 1; the end of its standard error: no such frame"},
		{"exit", []string{"CODE=1", "COMPLAINT=\xff\x1b[31mred\x1b[0m"}, nil, false, ": \uFFFD\uFFFD[31mred\uFFFD[0m"},
		{"half", nil, nil, false, "exited with code 3"},
		{"large result", nil, nil, true, "result has more than 1048576 bytes; put it in a blob"},
		{"linked result", nil, nil, true, "read the result: result is not a regular file"},
		{"result is a pipe", nil, nil, true, "result is not a regular file"},
		{"fills the disk", nil, func(k *Kind) { k.Disk = 1 << 20 }, false, "in its folder, of 1048576 allowed"},
		{"one large file", nil, func(k *Kind) { k.Disk, k.Environment["ELSEWHERE"] = 1<<20, writableForAll(t) }, false,
			"the command exited with code 91; the end of its standard error: write large: file too large"},
		{"eats memory", nil, func(k *Kind) { k.Memory = 256 << 20 }, false, "exited with code 2; the end of its standard error: "},
	} {
		t.Run(row.role+" "+row.says, func(t *testing.T) {
			t.Parallel()
			if row.role == "eats memory" {
				proof.WithoutRace(t, "the race detector reserves more memory than any limit")
			}
			b := setup(t)
			k := b.kind(row.role, row.variables...)
			if row.change != nil {
				row.change(&k)
			}
			w := b.run(k, "", nil)
			if w.err == nil || !strings.Contains(w.err.Error(), row.says) || job.IsPermanent(w.err) != row.permanent {
				t.Errorf("Run = %v, want an error with %q, permanent: %t", w.err, row.says, row.permanent)
			}
			if w.Latest().HasState() {
				t.Errorf("state %q was reported, want none", stateOf(t, w.Latest()))
			}
			if row.role == "eats memory" && !strings.Contains(b.log.String(), "out of memory") {
				t.Errorf("the program does not say that memory ran out:\n%s", b.log)
			}
			w.Close()
			b.wantNoFolders()
		})
	}
}

// brief is the handler of a kind that keeps its slot for a moment only.
func (b *rig) brief(k Kind) *Handler {
	return &Handler{kind: k, scratch: b.scratch, log: b.logger(), backOffDelay: time.Millisecond}
}

// demandNotCounted runs a job that this machine cannot run, and demands an
// interruption that says why.
func (b *rig) demandNotCounted(k Kind, says string) {
	b.t.Helper()
	j := job.New(job.Spec{ID: "a", Kind: "test"}, nil)
	_, err := b.brief(k).Run(b.t.Context(), j)
	if !job.IsInterrupted(err) || !strings.Contains(err.Error(), says) {
		b.t.Errorf("Run = %v, want an interruption that says %q", err, says)
	}
	if got := b.log.find("job not started: this machine cannot run it now; it is tried again, here or elsewhere"); len(got) != 1 {
		b.t.Errorf("%d log lines about it, want 1", len(got))
	}
	job.ControlOf(j).Close()
	b.wantNoFolders()
}

// TestMachineLacks: a program or file that is missing on this machine is not a failure of
// the job, with limits, which a shell sets before the program, and without.
func TestMachineLacks(t *testing.T) {
	script := func(t *testing.T, text string) string {
		name := filepath.Join(t.TempDir(), "script")
		if err := withoutForks(func() error { return os.WriteFile(name, []byte(text), 0o700) }); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, row := range []struct {
		name, says string
		change     func(t *testing.T, k *Kind)
	}{
		{"program", "/no/such/program", func(_ *testing.T, k *Kind) { k.Command = []string{"/no/such/program"} }},
		{"right to execute it", "permission denied", func(_ *testing.T, k *Kind) { k.Command = []string{"/dev/null"} }},
		{"directory", "its working directory: stat /no/such/folder: no such file",
			func(_ *testing.T, k *Kind) { k.Directory = "/no/such/folder" }},
		{"interpreter", "no such file", func(t *testing.T, k *Kind) { k.Command = []string{script(t, "#!/no/such/interpreter -x\n")} }},
		{"interpreter by name", `"no-such-interpreter": executable file not found`, func(t *testing.T, k *Kind) {
			k.Command = []string{script(t, "#!/usr/bin/env -S A=1 no-such-interpreter -x\n")}
		}},
		{"script", "a file of kind test is missing: stat ", func(t *testing.T, k *Kind) {
			name := script(t, "exit 0")
			k.Command = []string{"/bin/sh", name}
			k.Files = k.filesOf(k.Command[1:])
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}},
		{"script beside the others", "a file of kind test is missing: stat ", func(t *testing.T, k *Kind) {
			name := script(t, "exit 0")
			k.Directory, k.Command = filepath.Dir(name), []string{"/bin/sh", "script"}
			k.Files = k.filesOf(k.Command[1:])
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		for _, memory := range []int64{0, 1 << 30} {
			t.Run(fmt.Sprint(row.name, " memory ", memory), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				k := b.kind("exit", "CODE=1")
				k.Memory = memory
				row.change(t, &k)
				b.demandNotCounted(k, row.says)
			})
		}
	}
}

// TestJobCannotBeStarted: a refusal of the system that every machine would repeat is the
// job's failure: as an interruption it would circle for ever, and stop its kind.
func TestJobCannotBeStarted(t *testing.T) {
	b := setup(t)
	for _, memory := range []int64{0, 1 << 30} {
		k := b.kind("echo")
		k.Memory = memory
		w := b.prepared(k, func(j job.Control) { j.Trace = "\x00" })
		if w.err == nil || job.IsInterrupted(w.err) || !strings.Contains(w.err.Error(), "NUL") {
			t.Errorf("Run with a NUL in a variable = %v, want a failure that names it", w.err)
		}
	}
}

// TestScratchCannotBeUsed: a scratch folder that cannot be made is not a failure of a job,
// and jobs run again once it can be made.
func TestScratchCannotBeUsed(t *testing.T) {
	b := setup(t)
	if err := errors.Join(os.RemoveAll(b.scratch.Parent()), os.WriteFile(b.scratch.Parent(), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	b.demandNotCounted(b.kind("echo"), "not a directory")
	if err := os.Remove(b.scratch.Parent()); err != nil {
		t.Fatal(err)
	}
	if w := b.run(b.kind("echo"), "a", nil); string(w.result) != "a" || w.err != nil {
		t.Errorf("Run once the folder can be made = %q, %v, want the result", w.result, w.err)
	}
}

// TestCleanedAwayWhileRunning: a program whose folder was removed has neither failed nor
// finished, with any exit code.
func TestCleanedAwayWhileRunning(t *testing.T) {
	for _, code := range []string{"0", "1"} {
		b := setup(t)
		k := b.kind("exit")
		k.Command = shell("rm -rf " + b.home() + "; exit " + code)
		w := b.run(k, "", nil)
		if !job.IsInterrupted(w.err) || !strings.Contains(w.err.Error(), "the job's folder was removed from outside") {
			t.Errorf("exit %s: Run = %q, %v, want an interruption", code, w.result, w.err)
		}
	}
}

// TestStateFaults: a recorded state that cannot be read is a failure of the job.
func TestStateFaults(t *testing.T) {
	b := setup(t)
	broken := errors.New("recorded state is damaged")
	for name, stream := range map[string]func() (io.ReadCloser, error){
		"does not open":   func() (io.ReadCloser, error) { return nil, broken },
		"ends with error": func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(broken)), nil },
	} {
		for _, version := range []int{stateFile, stateFolder} {
			w := b.run(b.kind("restores"), "", &job.Progress{Version: version, Stream: stream})
			if !errors.Is(w.err, broken) || job.IsInterrupted(w.err) || job.IsPermanent(w.err) {
				t.Errorf("a state of version %d that %s: Run = %v, want a failure that says why", version, name, w.err)
			}
		}
	}
}

// shell is the command line of a shell script.
func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

// A checkpoint that cannot be kept does not matter once the job is done, unless the program
// was killed because of it.
func TestFaultAtTheEnd(t *testing.T) {
	b := setup(t)
	f, err := newFolder(b.scratch, &Kind{})
	if err != nil {
		t.Fatal(err)
	}
	fault := errors.New("too large")
	for _, row := range []struct {
		name string
		end  ended
		want error
	}{
		{"done", ended{exit: tree.Exit{Code: 0}, fault: fault}, nil},
		{"ended for it", ended{exit: tree.Exit{Code: -1, By: "signal SIGKILL"}, killed: true, fault: fault}, fault},
		{"done just before it was ended", ended{exit: tree.Exit{Code: 0}, killed: true, fault: fault}, fault},
		{"failed", ended{exit: tree.Exit{Code: 1}, fault: fault}, fault},
	} {
		r := newRun(job.New(job.Spec{}, nil), &Kind{}, f, nil, b.logger())
		if _, err := r.conclude(t.Context(), row.end, 0); !errors.Is(err, row.want) {
			t.Errorf("%s: conclude = %v, want %v", row.name, err, row.want)
		}
	}
}

// A checkpoint that cannot be kept ends a program that would run for ever.
func TestCheckpointThatCannotBeKept(t *testing.T) {
	for _, row := range []struct{ role, says string }{
		{"large checkpoint", "the checkpoint cannot be kept: too large: it has 300000 bytes, of 100000 allowed"},
		{"linked checkpoint", "the checkpoint cannot be kept: unsuitable: it is neither a file nor a folder"},
		{"folder with a link", `"link" is a symbolic link`},
	} {
		t.Run(row.role, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			k := b.kind(row.role)
			k.MaxCheckpoint = 100_000
			k.Command = shell(k.Command[0] + "; sleep 60")
			w := b.run(k, "", nil)
			if w.err == nil || !strings.Contains(w.err.Error(), row.says) || !job.IsPermanent(w.err) {
				t.Errorf("Run = %v, want a permanent error with %q", w.err, row.says)
			}
		})
	}
}

// alive reports whether a process runs; a process that has ended and is not reaped does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(status), ") Z ")
}

// TestProgress: a program's valid progress is reported, malformed lines are skipped.
func TestProgress(t *testing.T) {
	b := setup(t)
	w := b.begin(b.kind("progress", `LINES={"fraction":0.1}|nonsense|{"fraction":7}|{"fraction":0.5,"text":"half"}|{"fraction":0.9`), "", nil)
	b.until("progress", func() bool { return w.Latest() != nil })
	if got := w.Latest(); got.Fraction != 0.5 || got.Text != "half" || got.HasState() {
		t.Errorf("progress = %+v, want half, without a state", got)
	}
	const warning = `progress not understood: a line is {"fraction": 0.5, "text": "half of it"}, with a fraction from 0 to 1`
	if got := b.log.find(warning); len(got) != 1 || got[0]["lines"] != 2.0 {
		t.Errorf("log = %v, want one line about two that were not understood", got)
	}
}

// TestFlood: a program that prints without end fills neither log nor memory, and is not
// blocked.
func TestFlood(t *testing.T) {
	b := setup(t)
	w := b.run(b.kind("flood"), "", nil)
	if w.err != nil {
		t.Fatal(w.err)
	}
	lines := len(b.log.printed("stdout"))
	if most := printed.LinesBurst + int(time.Since(w.began)/time.Second+1)*printed.LinesPerSec; lines > most {
		t.Errorf("%d lines were logged, want at most %d", lines, most)
	}
	lost := 0.0
	for _, line := range b.log.find("program output left out: too many lines") {
		lost += line["lines"].(float64)
	}
	if lines+int(lost) != 300_000 {
		t.Errorf("%d lines logged and %.0f left out, want 300000 in all", lines, lost)
	}
}

// granted is a Granter that counts its grants.
type granted struct{ given, revoked atomic.Int64 }

func (g *granted) Grant(resources []string) (endpoint, secret string, revoke func()) {
	g.given.Add(1)
	return "http://127.0.0.1:1/" + strings.Join(resources, ","), "s3cret", func() { g.revoked.Add(1) }
}

// TestTokens: a program of a kind with tokens gets the endpoint for them while it runs, and
// one of another kind does not.
func TestTokens(t *testing.T) {
	for _, tokens := range [][]string{nil, {"https://storage.azure.com/"}} {
		b := setup(t)
		g := &granted{}
		k := Kind{Name: "test", Tokens: tokens, Command: []string{"/bin/sh", "-c",
			`echo "$IDENTITY_ENDPOINT $IDENTITY_HEADER" >"$SPOTWORKER_RESULT"`}}
		j := job.New(job.Spec{ID: "job-1", Kind: "test", Attempt: 1}, nil)
		result, err := NewHandler(k, b.scratch, nil, g, nil, b.logger()).Run(t.Context(), j)
		job.ControlOf(j).Close()
		want := " \n"
		if tokens != nil {
			want = "http://127.0.0.1:1/https://storage.azure.com/ s3cret\n"
		}
		if err != nil || string(result) != want {
			t.Errorf("with tokens %q the program finds %q, %v, want %q", tokens, result, err, want)
		}
		if g.given.Load() != int64(len(tokens)) || g.revoked.Load() != g.given.Load() {
			t.Errorf("with tokens %q: %d grants, %d revoked", tokens, g.given.Load(), g.revoked.Load())
		}
	}
}

// TestChildrenEndWithTheirProgram: children of a program are killed at its end, and open
// pipes do not delay the job.
func TestChildrenEndWithTheirProgram(t *testing.T) {
	for _, code := range []int{0, 1} {
		b := setup(t)
		w := b.begin(b.kind("forks", fmt.Sprint("CODE=", code)), "", nil)
		w.wait(t) // which is less patient than the child
		if (w.err == nil) != (code == 0) {
			t.Errorf("code %d: Run = %v", code, w.err)
		}
		pid, err := strconv.Atoi(stateOf(t, w.Latest()))
		if err != nil {
			t.Fatal(err)
		}
		b.until("the child's end", func() bool { return !alive(pid) })
	}
}
