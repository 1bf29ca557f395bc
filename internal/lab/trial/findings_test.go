package trial

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/text"
)

// began is when all runs of these tests start.
var began = time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }

// undisturbed is a program that takes 10 s and saves every second.
func undisturbed() *course {
	r := &programRun{VM: "spot_1", Started: at(0), Ended: at(10), Exit: "exited with code 0", InPlace: map[string]bool{}, Reports: 10,
		FirstSign: at(1)}
	for i := range 9 {
		s := float64(i + 1)
		r.Saves = append(r.Saves, save{Began: at(s - 0.1), Placed: at(s), Size: 100})
		r.Recorded = append(r.Recorded, recorded{At: at(s + 0.2), Bytes: 100})
	}
	return &course{Runs: []*programRun{r}, Ended: at(10), Done: true, Result: []byte("42")}
}

// evictedOnce is the same with an eviction after 4.5 s, at which it saved.
func evictedOnce() *course {
	first := &programRun{
		VM: "spot_1", Started: at(0), Stop: at(4.5), Ended: at(4.6), Handed: at(4.7), Exit: "exited with code 75", InPlace: map[string]bool{},
		Reports: 5, FirstSign: at(1), Strike: new(notice), Files: map[string]int64{},
		Saves: []save{{Placed: at(1), Size: 100}, {Placed: at(4), Size: 100}, {Placed: at(4.55), Size: 100}},
	}
	second := &programRun{
		VM: "spot_2", Started: at(5), Ended: at(10.6), Exit: "exited with code 0", InPlace: map[string]bool{}, Resumed: true, ResumedAt: 0.45,
		Reports: 6, First: 0.5, FirstSign: at(5.5), Saves: []save{{Placed: at(6), Size: 100}},
	}
	return &course{Runs: []*programRun{first, second}, Ended: at(10.6), Done: true, Result: []byte("42")}
}

// skipsOutputs has the program save nothing but outputs. The first one is made so many
// times in the second run: by the worker, and perhaps by the program again.
func skipsOutputs(o *observed, times int) {
	for _, c := range o.courses() {
		c.Outputs = map[string]string{"a": "1", "b": "2"}
		for _, r := range c.Runs {
			r.Saves, r.Recorded, r.Resumed = nil, nil, false
		}
	}
	o.evicted.Runs[0].Outputs = map[string]int{"output/a": 1}
	o.evicted.Runs[1].Outputs = map[string]int{"output/a": times, "output/b": 1}
}

// savesSeldom has the program report nothing, save once, at six of ten seconds,
// and take so many seconds from its checkpoint to its end.
func savesSeldom(o *observed, last float64) {
	for _, c := range o.courses() {
		for _, r := range c.Runs {
			r.Reports, r.Saves, r.Recorded = 0, []save{{Placed: r.Started.Add(6 * time.Second), Size: 100}}, nil
		}
	}
	first, second := o.evicted.Runs[0], o.evicted.Runs[1]
	first.Stop, first.Ended, first.Handed = at(7), at(7.1), at(7.2)
	second.Started, second.Ended = at(8), at(8+last)
}

func names(all []Finding) []string {
	var names []string
	for _, f := range all {
		names = append(names, f.Name)
	}
	return names
}

// TestFind changes one thing of a good program at a time.
func TestFind(t *testing.T) {
	for _, tt := range []struct {
		change func(o *observed)
		want   []string // beside remarks
		good   bool
	}{
		{func(*observed) {}, nil, true},
		{func(o *observed) { o.plain[1].Done, o.plain[1].Reason = false, "it broke"; o.evicted = nil }, []string{"program-fails"}, false},
		{func(o *observed) { o.plain[1].Result = []byte("43"); o.evicted = nil }, []string{"not-deterministic"}, false},
		{func(o *observed) { o.evicted.Result = nil }, []string{"result-differs"}, false},
		{func(o *observed) { o.plain[0].Outputs, o.evicted = map[string]string{"a": "1"}, nil }, []string{"not-deterministic"}, false},
		{func(o *observed) {
			for i, c := range o.courses() {
				c.Outputs = map[string]string{"a": []string{"1", "1", "2"}[i]}
			}
		}, []string{"result-differs"}, false},
		{func(o *observed) {
			o.evicted.Result, o.evicted.Runs[0].Files["work/lines"] = nil, 7
			o.plain[0].Runs[0].Used = map[string]bool{"work/lines": true}
		}, []string{"result-differs", "scratch-state"}, false},
		{func(o *observed) { // a log that nothing reads
			o.evicted.Result, o.evicted.Runs[0].Files["work/log"] = nil, 7
		}, []string{"result-differs"}, false},
		{func(o *observed) { // it was stopped before, and went on
			o.evicted.Result = []byte("7")
			last := o.evicted.Runs[1]
			last.Strike, last.Stop, last.Ended, last.Reports = new(notice), at(6), at(6.1), 0
		}, []string{"result-differs"}, false},
		{func(o *observed) { // it had reported its end
			o.evicted.Result, o.evicted.Runs, o.evicted.Runs[0].Exit = []byte("7"), o.evicted.Runs[:1], "exited with code 0"
			o.evicted.Runs[0].Fraction = 0.97
		}, []string{"result-differs"}, false},
		{func(o *observed) { // state in /tmp
			o.evicted.Result, o.evicted.Runs[0].Outside = nil, map[string]int64{"/tmp/state": 7}
		}, []string{"result-differs", "outside-state"}, false},
		{func(o *observed) { // files outside that do no harm
			o.evicted.Runs[0].Outside = map[string]int64{"/tmp/cache": 7}
		}, nil, true},
		{func(o *observed) { // the first run left something for the second
			o.plain[1].Result, o.evicted = []byte("43"), nil
			o.plain[0].Runs[0].Outside = map[string]int64{"/tmp/state": 7}
		}, []string{"not-deterministic", "outside-state"}, false},
		{func(o *observed) { // it was at its end when the eviction came
			o.evicted.Runs = o.evicted.Runs[:1]
			o.evicted.Runs[0].Saves, o.evicted.Runs[0].Exit = nil, "exited with code 0"
		}, []string{"not-evicted"}, false},
		{func(o *observed) { skipsOutputs(o, 1) }, []string{"outputs-only"}, true},
		{func(o *observed) { skipsOutputs(o, 2) }, []string{"saves-nothing"}, false},
		{func(o *observed) {
			o.evicted.Result, o.evicted.Runs, o.evicted.Runs[0].Exit = []byte("7"), o.evicted.Runs[:1], "exited with code 0"
		}, []string{"half-done"}, false},
		{func(o *observed) { o.evicted.Runs[0].Exit = "exited with code 0" }, []string{"exit-0"}, true},
		{func(o *observed) { o.evicted.Done, o.evicted.Reason = false, "no such key" }, []string{"cannot-resume"}, false},
		{func(o *observed) { o.evicted.Done, o.evicted.Runs[1].Resumed = false, false }, []string{"cannot-restart"}, false},
		{func(o *observed) {
			o.evicted.Done = false
			o.evicted.Runs[0].InPlace[checkpointName] = true
		}, []string{"torn-checkpoint", "checkpoint-in-place"}, false},
		{func(o *observed) { o.plain[0].Runs[0].InPlace[resultName] = true }, []string{"result-in-place"}, false},
		{func(o *observed) { o.plain[0].Runs[0].Changed = true }, []string{"checkpoint-changed"}, false},
		{func(o *observed) { o.evicted.Runs[1].First = 0 }, []string{"ignores-restore"}, false},
		{func(o *observed) { savesSeldom(o, 5) }, nil, true},
		{func(o *observed) { savesSeldom(o, 10) }, []string{"ignores-restore"}, false},
		{func(o *observed) { // the machine may have been slow
			savesSeldom(o, 10)
			o.evicted.Runs[1].Read = true
		}, []string{"ignores-restore"}, true},
		{func(o *observed) { o.evicted.Ended, o.evicted.Done, o.gaveUp = time.Time{}, false, "it did not end" }, []string{"not-finished"}, false},
		{func(o *observed) { o.overdue = "it took long" }, []string{"out-of-time"}, false},
		{func(o *observed) { // saves within the grace, and ends long after
			o.evicted.Runs[0].Ended, o.evicted.Runs[0].Killed = at(8.9), true
		}, []string{"ignores-stop"}, true},
		{func(o *observed) { // a checkpoint was begun and never complete
			r := o.evicted.Runs[0]
			r.Ended, r.Killed, r.Saves, r.Saving = at(8.9), true, r.Saves[:2], at(4.6)
		}, []string{"late-save"}, false},
		{func(o *observed) { // it was complete too late
			r := o.evicted.Runs[0]
			r.Ended, r.Handed, r.Saves[2].Placed = at(9.2), at(9.3), at(9.1)
		}, []string{"late-save"}, false},
		{func(o *observed) {
			for _, r := range slices.Concat(o.plain[0].Runs, o.evicted.Runs) {
				r.Saves, r.Recorded = nil, nil
			}
		}, []string{"saves-nothing"}, false},
		{func(o *observed) { o.plain[0].Runs[0].Saves = nil }, []string{"saves-at-stop-only"}, true},
		{func(o *observed) {
			for i := range o.plain[0].Runs[0].Recorded {
				o.plain[0].Runs[0].Recorded[i].Bytes = int64(i+1) * 20_000
			}
		}, []string{"checkpoint-grows"}, true},
		{func(o *observed) { // more with each eviction
			for i := range o.plain[0].Runs[0].Recorded {
				o.plain[0].Runs[0].Recorded[i].Bytes = int64(i+1) * 20_000
			}
			o.evicted.Runs[1].Saves[0].Size = 1_000_000
		}, []string{"checkpoint-grows"}, false},
		{func(o *observed) { o.evicted.Runs[0].Strays = map[int]child{7: {Command: "sleep 9"}} }, []string{"left-group"}, true},
		{func(o *observed) {
			o.evicted.Runs[0].Strays = map[int]child{7: {Command: "sleep 9"}}
			o.evicted.Runs[0].Outlive = o.evicted.Runs[0].Strays
		}, []string{"left-behind"}, false},
		{func(o *observed) { // killed some milliseconds before the grace was over
			o.evicted.Runs[0].Ended, o.evicted.Runs[0].Killed = at(4.5+LongestGrace.Seconds()-0.003), true
		}, []string{"ignores-stop"}, true},
		{func(o *observed) { // nothing to compare
			for _, c := range o.courses() {
				c.Result = nil
			}
		}, []string{"no-result"}, false},
		{func(o *observed) { // outputs are compared too
			for i, c := range o.courses() {
				c.Result, c.Outputs = nil, map[string]string{"a": strconv.Itoa(i / 2)}
			}
		}, []string{"result-differs"}, false},
		{func(o *observed) { // it had come to its end when it was stopped again
			second := o.evicted.Runs[1]
			second.Strike, second.Stop, second.Started, second.Ended = new(notice), at(10.5), at(5), at(10.6)
			o.evicted.Result = []byte("41")
		}, []string{"result-differs"}, false},
		{func(o *observed) { // a daemon
			o.evicted = nil
			for _, c := range o.plain {
				c.Ended, c.Runs[0].Ended, c.Runs[0].Outlive = at(0.2), at(0.2), map[int]child{7: {Command: "work"}}
			}
		}, []string{"daemon", "left-behind"}, false},
		{func(o *observed) { // its processes were ended with it
			o.evicted = nil
			for _, c := range o.plain {
				c.Ended, c.Runs[0].Ended, c.Runs[0].Left = at(0.2), at(0.2), 1
			}
		}, []string{"daemon"}, false},
		{func(o *observed) { o.plain[0].Runs[0].Left = 2 }, nil, true}, // helpers of a long program
	} {
		o := observed{plain: []*course{undisturbed(), undisturbed()}, evicted: evictedOnce()}
		tt.change(&o)
		c := DefaultConfig()
		c.Evictions = 1
		r := judge(c, "program", o)
		found := slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Severity == Remark })
		if !slices.Equal(names(found), tt.want) || r.Interruptible != tt.good {
			t.Errorf("findings = %q and interruptible: %t, want %q and %t", names(r.Findings), r.Interruptible, tt.want, tt.good)
		}
	}
}

func TestReport(t *testing.T) {
	c := DefaultConfig()
	r := judge(c, "program", observed{plain: []*course{undisturbed(), undisturbed()}, evicted: evictedOnce()})
	want := Eviction{How: "notice", After: 4.6, Stop: 0.1, Release: 0.2, Back: 0.3, Sign: 0.5, Saved: true, Exit: "exited with code 75"}
	late := evictedOnce()
	late.Runs[0].Stop = late.Runs[0].Ended.Add(4 * time.Millisecond) // seen after the end
	if e := evictionsOf(late)[0]; e.Stop != 0 {
		t.Errorf("stop after %g s, want 0: -1 is for a time that was not observed", e.Stop)
	}
	if len(r.Evictions) != 1 || r.Evictions[0] != want {
		t.Errorf("evictions = %+v, want %+v", r.Evictions, want)
	}
	if u := r.Undisturbed; u.Seconds != 10 || u.Checkpoints != 9 || u.Interval != 1 || u.SaveSeconds != 0.1 || u.CheckpointBytes != 100 {
		t.Errorf("undisturbed = %+v", u)
	}
	if raw, err := json.Marshal(judge(c, "program", observed{})); err != nil || bytes.Contains(raw, []byte("null")) {
		t.Errorf("JSON = %s, %v, want empty lists and no null", raw, err)
	}
	if r.Cost == nil || r.Cost.Notice != 0.5 {
		t.Errorf("cost = %+v, want half a second: release and return", r.Cost)
	}
	r.Findings = append(r.Findings, Finding{Name: "program-fails", Severity: Problem, What: "it printed \x1b[2J" +
		strings.Repeat(" and much more", 20)})
	var out bytes.Buffer
	r.write(&out)
	for line := range strings.Lines(out.String()) {
		if len(line) > text.Width+12 || strings.ContainsRune(line, '\x1b') {
			t.Errorf("line is too long, or controls the terminal: %q", line)
		}
	}
	if raw, err := json.Marshal(r); err != nil || !bytes.Contains(raw, []byte(`"interruptible":true`)) {
		t.Errorf("JSON = %s, %v", raw, err)
	}
}

// TestUntried: a trial that could not answer the question says so, unless it found a problem.
func TestUntried(t *testing.T) {
	problems := func(names ...string) (r Report) {
		for _, name := range names {
			r.Findings = append(r.Findings, Finding{Name: name, Severity: Problem}, Finding{Name: "warned", Severity: Warning})
		}
		return r
	}
	for verdict, reports := range map[string][]Report{
		"NOT TRIED": {problems("no-result"), problems("out-of-time", "not-evicted"), problems("daemon", "left-behind")},
		"NOT INTERRUPTIBLE": {problems("left-behind"), problems("no-result", "saves-nothing"), problems("daemon", "left-behind",
			"torn-checkpoint")},
		"INTERRUPTIBLE": {{Interruptible: true}},
	} {
		for _, r := range reports {
			var out bytes.Buffer
			r.write(&out)
			if lines := strings.Split(out.String(), "\n"); !strings.HasPrefix(lines[len(lines)-2], verdict+"  ") {
				t.Errorf("%q: %q, want %s", names(r.Findings), lines[len(lines)-2], verdict)
			}
		}
	}
}

// TestRedone: the loss of an eviction is counted from the last recorded checkpoint.
func TestRedone(t *testing.T) {
	r := &programRun{Started: at(0), Ended: at(5), Saves: []save{{Placed: at(1)}, {Placed: at(2)}, {Placed: at(3)}}}
	if got := r.redone(); got != 5*time.Second {
		t.Errorf("nothing was recorded: redone = %s, want all 5 s", got)
	}
	r.Recorded = []recorded{{At: at(2.5)}}
	if got := r.redone(); got != 3*time.Second {
		t.Errorf("recorded before the third: redone = %s, want 3 s", got)
	}
	r.Stop, r.Handed = at(4), at(5.1)
	if got := r.redone(); got != time.Second {
		t.Errorf("released: redone = %s, want 1 s, up to SIGTERM", got)
	}
}
