package trial

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/program"
)

// TestSnapshotRefused says why a machine without CRIU cannot try a program, and what to do.
func TestSnapshotRefused(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	kinds := filepath.Join(t.TempDir(), "kinds.json")
	text := `{"kinds": {"a": {"command": ["` + strings.ReplaceAll(self, `\`, `\\`) + `"], "snapshot": "criu"}}}`
	if err := os.WriteFile(kinds, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "there is no criu in the worker's PATH: install it"
	if runtime.GOOS != "linux" {
		want = "process snapshots take Linux"
	}
	for name, change := range map[string]func(*Config){
		"flag": func(c *Config) { c.Command, c.Snapshot = []string{self}, true },
		"kind": func(c *Config) { c.KindsFile = kinds },
	} {
		c := DefaultConfig()
		change(&c)
		var out bytes.Buffer
		report, err := Run(t.Context(), c, &out)
		if !errors.Is(err, ErrNotTried) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || report.Version != 0 {
			t.Errorf("%s: Run = %v, want ErrNotTried with %q in one line", name, err, want)
		}
		if _, err := Measure(t.Context(), c, &out); !errors.Is(err, ErrNotTried) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Measure = %v, want ErrNotTried with %q", name, err, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*")); len(left) > 0 {
		t.Errorf("the trial left %q behind", left)
	}
}

// TestSnapshotKind makes the kind of an unchanged program, whose files are its outputs.
func TestSnapshotKind(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	file := func(settings string) string {
		name := filepath.Join(folder, "kinds.json")
		text := `{"kinds": {"a": {"command": ["` + strings.ReplaceAll(self, `\`, `\\`) + `"]` + settings + `}}}`
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, row := range map[string]struct {
		config Config
		file   string // settings in a kinds file
		from   []string
		err    string
	}{
		"program":               {Config{Command: []string{self}, Snapshot: true, Compare: CompareOutputs}, "", []string{"*"}, ""},
		"program, result alone": {Config{Command: []string{self}, Snapshot: true, Compare: CompareResult}, "", nil, ""},
		"kind":                  {Config{Compare: CompareOutputs}, `, "snapshot": "criu"`, []string{"*"}, ""},
		"kind with outputs": {
			Config{Compare: CompareOutputs}, `, "snapshot": "criu", "outputs": {"from": ["*.xz"]}`, []string{"*.xz"}, "",
		},
		"kind of a flag":            {Config{Snapshot: true, Compare: CompareOutputs}, "", []string{"*"}, ""},
		"kind with its own files":   {Config{Snapshot: true}, `, "checkpoint_files": ["a"]`, nil, "checkpoint_files has no use with snapshot"},
		"kind with a stop's signal": {Config{Snapshot: true}, `, "stop_signal": "SIGINT"`, nil, "stop_signal has no use with snapshot"},
	} {
		if row.config.Command == nil {
			row.config.KindsFile = file(row.file)
		}
		p, err := row.config.findProgram()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		written, err := p.write(t.TempDir())
		if row.err != "" {
			if runtime.GOOS != "windows" && (err == nil || !strings.Contains(err.Error(), row.err)) {
				t.Errorf("%s: kinds file of the trial = %v, want %q", name, err, row.err)
			}
			continue
		}
		kinds, readErr := program.ReadKinds(written)
		if err != nil || readErr != nil || !p.snapshot || !kinds[0].Snapshot {
			t.Errorf("%s: %+v, %v, %v, want a kind with snapshots", name, p.settings, err, readErr)
			continue
		}
		if got := kinds[0].Outputs; (got == nil) != (row.from == nil) || got != nil && !slices.Equal(got.From, row.from) {
			t.Errorf("%s: outputs = %+v, want those of %q", name, got, row.from)
		}
	}
}

// frozen is a program of 10 s that was evicted after 4.5 s, with a snapshot every 2 s.
func frozen() observed {
	plain := func() *course {
		r := &programRun{VM: "spot_1", Started: at(0), Ended: at(10), Exit: "exited with code 0", FirstSign: at(2)}
		for _, s := range []float64{2, 4, 6, 8} {
			r.Saves = append(r.Saves, save{Began: at(s - 0.1), Placed: at(s), Size: 100})
		}
		return &course{Runs: []*programRun{r}, Ended: at(10), Done: true, Outputs: map[string]string{"out": "1"}}
	}
	first := &programRun{VM: "spot_1", Started: at(0), Stop: at(4.5), Ended: at(4.6), Handed: at(4.7), Exit: "exited with code 75",
		Strike: new(notice), Saves: []save{{Placed: at(2)}, {Placed: at(4)}, {Placed: at(4.6)}}}
	second := &programRun{VM: "spot_2", Started: at(5), FirstSign: at(5.25), Ended: at(11), Exit: "exited with code 0", Resumed: true}
	return observed{snapshot: true, plain: []*course{plain(), plain()},
		evicted: &course{Runs: []*programRun{first, second}, Ended: at(11), Done: true, Outputs: map[string]string{"out": "1"}}}
}

// TestFindFrozen changes one thing of a good program that is frozen at a time.
func TestFindFrozen(t *testing.T) {
	for name, row := range map[string]struct {
		change func(first *programRun, o *observed)
		want   []string // beside remarks
		what   string   // in the first of them
	}{
		"good": {func(*programRun, *observed) {}, nil, ""},
		"result in place": {func(first *programRun, _ *observed) { // it is frozen in the middle, so that it need not rename
			first.InPlace, first.Changed = map[string]bool{resultName: true}, true
		}, nil, ""},
		"fails":   {func(_ *programRun, o *observed) { o.plain[0].Done = false }, []string{"program-fails"}, "after 4 snapshots"},
		"differs": {func(_ *programRun, o *observed) { o.evicted.Outputs["out"] = "2" }, []string{"result-differs"}, `output "out"`},
		"nothing to compare": {func(_ *programRun, o *observed) {
			for _, c := range o.courses() {
				c.Outputs = nil
			}
		}, []string{"no-result"}, "nothing was compared"},
		"never frozen, by its nature": {func(_ *programRun, o *observed) {
			o.evicted = nil
			o.plain[0].Done, o.plain[0].Reason = false, "failed; the last: "+reasonNotFrozen+"it has a socket"
		}, []string{"not-frozen"}, "it cannot be frozen: it has a socket"},
		"not frozen when it was evicted, by its nature": {func(_ *programRun, o *observed) {
			o.evicted.Done, o.evicted.Reason = false, reasonNotFrozen+"it has a socket"
		}, []string{"not-frozen"}, "it has a socket"},
		"never frozen here": {func(first *programRun, o *observed) {
			first.Saves, first.Unfrozen, first.Killed = nil, "it is on an overlay", true
			o.evicted.Runs, o.evicted.Ended, o.evicted.Done = o.evicted.Runs[:1], time.Time{}, false
		}, []string{"not-frozen"}, "no snapshot was taken, so that it starts from the beginning after every eviction: it is on an overlay"},
		"once not frozen": {func(first *programRun, _ *observed) { first.Unfrozen, first.Killed = "it has a pipe", true },
			[]string{"not-always-frozen"}, "it has a pipe"},
		"too slow": {func(first *programRun, _ *observed) {
			first.Ended, first.Killed, first.Unfrozen = first.Stop.Add(LongestGrace-time.Millisecond), true, "the program has ended"
		}, []string{"late-save"}, "not frozen within 4.37s"},
		"cannot be continued": {func(_ *programRun, o *observed) { o.evicted.Done, o.evicted.Reason = false, "criu failed" },
			[]string{"cannot-resume"}, "criu failed"},
		"fails at its second start": {func(_ *programRun, o *observed) {
			o.evicted.Done, o.evicted.Runs[1].Resumed, o.evicted.Reason = false, false, "no such file"
		}, []string{"cannot-restart"}, "no such file"},
		"stands still": {func(_ *programRun, o *observed) {
			o.evicted.Done, o.evicted.Ended, o.gaveUp = false, time.Time{}, "it did not end"
		}, []string{"not-finished"}, "it did not end"},
	} {
		o := frozen()
		row.change(o.evicted.Runs[0], &o)
		report := judge(DefaultConfig(), "program", o)
		found := slices.DeleteFunc(slices.Clone(report.Findings), func(f Finding) bool { return f.Severity == Remark })
		if !slices.Equal(names(found), row.want) || len(found) > 0 && !strings.Contains(found[0].What, row.what) {
			t.Errorf("%s: findings %+v, want %q with %q", name, found, row.want, row.what)
		}
		if name != "good" {
			continue
		}
		var out bytes.Buffer
		report.write(&out)
		for _, want := range []string{"snapshots              4, up to 100 B, one every 2s, taken in 100ms",
			"to stop                100ms    at most 100ms    the stop to the program's end",
			"to work again          250ms    at most 250ms    start to its continuation", "INTERRUPTIBLE"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the report does not say %q:\n%s", want, out.String())
			}
		}
		if m, err := report.measured(); err != nil || m.Start != 0.25 || !m.AtNotice || m.StateEvery != 2 {
			t.Errorf("measured = %+v, %v, want a start of 0.25 s and a state at the notice", m, err)
		}
	}
}

// TestRecordSnapshots reads the worker's log and the files of a program that is frozen.
func TestRecordSnapshots(t *testing.T) {
	r := newRecorder()
	line := func(text string) { r.onLine("spot_1", []byte(`{"time": "2026-03-09T12:00:00Z", `+text+`}`)) }
	line(`"msg": "job started"`)
	line(`"msg": "` + msgContinued + `", "took": 0.2`)
	changes := []fileChange{
		{op: created, name: "snapshot-1", isDir: true, at: at(1)}, {op: modified, name: "snapshot-1/images/a", at: at(1.1)},
		{op: moved, name: checkpointName, from: "snapshot-1", at: at(1.2)},
		{op: moved, name: keptName + "/1", from: checkpointName, size: 100, files: 3, at: at(1.3)},
		{op: created, name: "snapshot-2", isDir: true, at: at(2)},
	}
	saving := 0
	r.whenSaving(func(string) { saving++ })
	for _, c := range changes {
		r.see(func() {
			if act := r.fileChanged("spot_1", c); act != nil {
				act("spot_1")
			}
		})
	}
	line(`"msg": "` + msgNotFrozen + `", "error": "it has a pipe"`)
	run := r.last("spot_1")
	if !run.Resumed || run.FirstSign.IsZero() || run.Unfrozen != "it has a pipe" || saving != 1 {
		t.Errorf("run = %+v with %d calls, want it to be continued, and one call at the first snapshot", run, saving)
	}
	if want := (save{Began: at(1), Placed: at(1.2), Size: 100, Files: 3}); len(run.Saves) != 1 || run.Saves[0] != want {
		t.Errorf("saves = %+v, want %+v", run.Saves, want)
	}
	r.gone("spot_1", at(3))
	if run.Saving != at(2) {
		t.Errorf("unfinished since %s, want the second snapshot", run.Saving)
	}
}
