package program

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"github.com/spotworker/spotworker/internal/program/archive"
	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/job"
)

// seen holds the findings of a program in the role "environment".
type seen struct {
	Environment []string
	Arguments   []string
	Directory   string
}

func (w *work) seen(t *testing.T) (s seen) {
	t.Helper()
	if w.err != nil {
		t.Fatalf("Run = %v", w.err)
	}
	if err := json.Unmarshal(w.result, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// awkward are arguments that a command line easily changes.
var awkward = []string{
	"plain", "", "two words", `a\`, `two words\`, `C:\Übung\Maß`, `a&b`, `a|b>c<d`, "^caret^", "(a)", "a,b;c=d", "日本", "!now!",
}

// TestArguments has a program print its arguments.
func TestArguments(t *testing.T) {
	b := setup(t)
	k := b.kind("environment")
	k.Command = append(k.Command, append([]string{"%PATH%", "100%", `a "quoted" word`, `\"`}, awkward...)...)
	if got := b.run(k, "1", nil).seen(t); !slices.Equal(got.Arguments, k.Command[1:]) {
		t.Errorf("arguments = %q, want %q", got.Arguments, k.Command[1:])
	}
}

// TestBatchFile runs a batch file in a folder with spaces and umlauts, which passes its
// arguments on. Quotes and percent signs, which Wine's cmd does not pass on as Windows'
// does, are left to [TestBatchLine].
func TestBatchFile(t *testing.T) {
	b := setup(t)
	k := b.kind("environment")
	dir := filepath.Join(t.TempDir(), "Müllers Aufträge (neu)")
	batch := filepath.Join(dir, "run.cmd")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(batch, []byte("@echo off\r\n\"%PROGRAM%\" %*\r\nexit /b %ERRORLEVEL%\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.Environment["PROGRAM"] = k.Command[0]
	k.Command = append([]string{batch}, awkward...)
	if got := b.run(k, "1", nil).seen(t); !slices.Equal(got.Arguments, awkward) {
		t.Errorf("arguments through a batch file =\n%q, want\n%q", got.Arguments, awkward)
	}
}

// TestEnvironmentNames has names in another case than the worker's.
func TestEnvironmentNames(t *testing.T) {
	b := setup(t)
	k := b.kind("environment", "Path=C:\\own", "pathext=.EXE")
	got := b.run(k, "1", nil).seen(t)
	values := map[string][]string{}
	for _, variable := range got.Environment {
		name, text, _ := strings.Cut(variable, "=")
		values[strings.ToUpper(name)] = append(values[strings.ToUpper(name)], text)
	}
	for name, want := range map[string]string{"PATH": `C:\own`, "PATHEXT": ".EXE", "SYSTEMROOT": os.Getenv("SystemRoot"),
		"USERPROFILE": got.Directory} {
		if !slices.Equal(values[name], []string{want}) {
			t.Errorf("%s = %q, want %q once", name, values[name], want)
		}
	}
	for _, name := range []string{"TEMP", "APPDATA", "LOCALAPPDATA"} {
		if all := values[name]; len(all) != 1 || !strings.HasPrefix(all[0], filepath.Dir(got.Directory)) {
			t.Errorf("%s = %q, want a folder of the job", name, all)
		}
	}
	if err := checkVariable("spotworker_payload"); err == nil {
		t.Error("checkVariable of a name of the contract in lower case = nil, want an error")
	}
}

// TestStopSaves stops a program that saves at Ctrl-Break, or when the stop file is
// there: Wine sends no Ctrl-Break.
func TestStopSaves(t *testing.T) {
	b := setup(t)
	ready := filepath.Join(t.TempDir(), "ready")
	k := b.kind("saves")
	k.Directory = filepath.Dir(ready)
	w := b.begin(k, "1", nil)
	b.until("the program is ready", func() bool { return exists(ready) })
	w.stop(job.Evicted, time.Minute)
	w.wait(t)
	if !job.IsInterrupted(w.err) {
		t.Errorf("Run = %v, want an interruption", w.err)
	}
	if state := stateOf(t, w.Latest()); !strings.Contains(state, `"reason":"evicted"`) {
		t.Errorf("state = %q, want what the program saved at the stop", state)
	}
}

// TestCtrlBreakEnds stops a program that does not handle it.
func TestCtrlBreakEnds(t *testing.T) {
	if windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil {
		need.Absent(t, need.CtrlBreak, "this is Wine")
	}
	b := setup(t)
	ready := filepath.Join(t.TempDir(), "ready")
	k := b.kind("unaware")
	k.Directory = filepath.Dir(ready)
	w := b.begin(k, "1", nil)
	b.until("the program is ready", func() bool { return exists(ready) })
	w.stop(job.Evicted, time.Minute)
	w.wait(t)
	if !job.IsInterrupted(w.err) || !strings.Contains(w.err.Error(), "Ctrl-Break") {
		t.Errorf("Run = %v, want an interruption by Ctrl-Break", w.err)
	}
}

// TestStubbornTree stops a program that ignores Ctrl-Break and has a child with a
// child, which hold files of the job open.
func TestStubbornTree(t *testing.T) {
	b := setup(t)
	ids := filepath.Join(t.TempDir(), "ids")
	w := b.begin(b.kind("stubborn", "IDS="+ids), "1", nil)
	b.until("three processes run", func() bool { return len(readIDs(ids)) == 3 })
	b.until("the checkpoint", func() bool { return w.Latest() != nil })
	w.stop(job.Evicted, 500*time.Millisecond)
	w.wait(t)
	if !job.IsInterrupted(w.err) || !strings.Contains(w.err.Error(), "was killed") {
		t.Errorf("Run = %v, want an interruption of a program that was killed", w.err)
	}
	noneRuns(t, ids)
	w.Close()
	b.demandNothingLeft()
}

// TestLeftChildren ends with a program the processes that it leaves.
func TestLeftChildren(t *testing.T) {
	b := setup(t)
	ids := filepath.Join(t.TempDir(), "ids")
	w := b.run(b.kind("leaves children", "IDS="+ids), "1", nil)
	if w.err != nil {
		t.Errorf("Run = %v", w.err)
	}
	noneRuns(t, ids)
}

// TestKilledWorker kills a worker. Its job's processes end with it, and the next
// worker removes its folder.
func TestKilledWorker(t *testing.T) {
	parent, ids := t.TempDir(), filepath.Join(t.TempDir(), "ids")
	worker := exec.Command(os.Args[0]) //nolint:noctx // killed below
	worker.Env = append(os.Environ(), roleVariable+"=worker", "SCRATCH="+parent, "IDS="+ids)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	b := &rig{t: t, log: &logLines{}}
	b.until("three processes run", func() bool { return len(readIDs(ids)) == 3 })
	second, err := scratch.Open(parent, nil, b.logger()) // beside it
	if err != nil {
		t.Fatal(err)
	}
	if folders := homes(t, parent); len(folders) != 2 {
		t.Errorf("scratch folders of two workers = %q, want 2", folders)
	}
	if err := second.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	_ = worker.Process.Kill()
	_ = worker.Wait()
	b.until("its processes ended", func() bool { return !slices.ContainsFunc(readIDs(ids), runs) })
	next, err := scratch.Open(parent, nil, b.logger())
	if err != nil {
		t.Fatal(err)
	}
	if folders := homes(t, parent); len(folders) != 1 {
		t.Errorf("scratch folders after the next start = %q, want its own alone; log:\n%s", folders, b.log)
	}
	if err := next.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
}

func homes(t *testing.T, parent string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}

// TestHeldCheckpoint has a virus scanner open a checkpoint for a second.
func TestHeldCheckpoint(t *testing.T) {
	for _, ended := range []bool{false, true} {
		dir := t.TempDir()
		c := collector{from: filepath.Join(dir, "checkpoint"), dir: dir, limits: roomy, log: slog.New(slog.DiscardHandler), ended: ended,
			stop: t.Context()}
		scanner, err := os.Create(c.from)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = scanner.WriteString("state")
		if !ended {
			if state, err := c.collect(t.Context()); state != nil || err != nil {
				t.Errorf("collect of a checkpoint that is open = %v, %v, want none yet", state, err)
			}
		}
		closed := time.AfterFunc(time.Second, func() { _ = scanner.Close() })
		if !ended {
			closed.Stop()
			_ = scanner.Close()
		}
		if state, err := c.collect(t.Context()); err != nil || stateOf(t, state) != "state" {
			t.Errorf("collect after the end of the program: %t = %v, %v, want the state", ended, state, err)
		}
	}
}

// TestLongPaths has a checkpoint with paths of more than 260 characters.
func TestLongPaths(t *testing.T) {
	b := setup(t)
	w := b.run(b.kind("long paths"), "1", nil)
	if w.err != nil {
		t.Fatalf("Run = %v", w.err)
	}
	to := t.TempDir()
	if err := archive.Extract(strings.NewReader(stateOf(t, w.Latest())), to, roomy); err != nil {
		t.Fatalf("Extract = %v", err)
	}
	data, err := os.ReadFile(filepath.Join(to, strings.Repeat(`ä folder with a long name\`, 12), "file"))
	if err != nil || string(data) != "deep" {
		t.Errorf("restored file = %q, %v, want that of the checkpoint", data, err)
	}
	if _, err := scratch.Open(filepath.Join(to, strings.Repeat(`long\`, 50)), nil, b.logger()); err == nil ||
		!strings.Contains(err.Error(), "shorter path") {
		t.Errorf("OpenScratch with a long path = %v, want an error that asks for a shorter one", err)
	}
}

// TestExits has exit codes and their names.
func TestExits(t *testing.T) {
	b := setup(t)
	for _, row := range []struct{ code, want string }{
		{"0xC0000005", "ended by exception 0xC0000005 (access violation)"},
		{"1816", "quota"},
		{"3", "exited with code 3"},
	} {
		if w := b.run(b.kind("exit", "CODE="+row.code), "1", nil); w.err == nil || job.IsInterrupted(w.err) ||
			!strings.Contains(w.err.Error(), row.want) {
			t.Errorf("Run of a program with exit code %s = %v, want a failure with %q", row.code, w.err, row.want)
		}
	}
}

// TestLimits has the system take limits. That they hold is left to Windows: Wine
// records them only.
func TestLimits(t *testing.T) {
	b := setup(t)
	k := b.kind("environment")
	k.Memory = 1 << 30
	b.run(k, "1", nil).seen(t)
}

// noneRuns waits for the end of processes.
func noneRuns(t *testing.T, file string) {
	t.Helper()
	ids := readIDs(file)
	if len(ids) != 3 {
		t.Errorf("processes of the job = %v, want 3", ids)
	}
	if slices.ContainsFunc(ids, runs) {
		t.Errorf("processes %v run after the end of their job, want none", ids)
	}
}

// runs reports whether a process has not ended.
func runs(id int) bool {
	handle, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(id))
	if err != nil {
		return false
	}
	defer func() { _ = windows.CloseHandle(handle) }()
	event, _ := windows.WaitForSingleObject(handle, 0)
	return event == uint32(windows.WAIT_TIMEOUT)
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
