package trial

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

func TestMeasured(t *testing.T) {
	good := Report{
		Undisturbed: Timing{Seconds: 10, Checkpoints: 9, CheckpointBytes: 100, Interval: 1},
		Evictions: []Eviction{{How: "notice", Stop: 0.1, Sign: 1.5, Saved: true}, {How: "kill", Stop: -1, Sign: 3.5},
			{How: "cut off", Stop: -1, Sign: -1}},
	}
	want := Measured{Seconds: 10, StateBytes: 100, StateEvery: 1, AtNotice: true, Stop: 0.1, Start: 2.5}
	problem := func(name string) []Finding { return []Finding{{name, Problem, "it is wrong", "Repair it."}} }
	for name, row := range map[string]struct {
		change func(r *Report, m *Measured)
		err    string
	}{
		"good":   {func(*Report, *Measured) {}, ""},
		"frozen": {func(r *Report, m *Measured) { r.Snapshot, m.Snapshot, m.Start = true, true, 3.5 }, ""},
		"stopped too early once": {func(r *Report, m *Measured) {
			r.Evictions = append(r.Evictions, Eviction{Stop: 0.3, Sign: -1})
			m.Stop = 0.3
		}, ""},
		"one checkpoint": {func(r *Report, m *Measured) {
			r.Undisturbed.Checkpoints, r.Undisturbed.Interval = 1, 0
			m.StateEvery, m.Start = 5, 3.5
		}, ""},
		"observed at once": {func(r *Report, m *Measured) {
			r.Undisturbed.Interval = 0
			m.StateEvery, m.Start = 1, 3.5
		}, ""},
		"at the notice alone": {func(r *Report, m *Measured) {
			r.Undisturbed.Checkpoints, r.Undisturbed.Interval = 0, 0
			m.StateEvery, m.Start = 0, 3.5
		}, ""},
		"saves nothing": {func(r *Report, m *Measured) {
			r.Findings = problem("saves-nothing")
			r.Undisturbed, r.Evictions[0].Saved = Timing{Seconds: 10}, false
			*m = Measured{Seconds: 10, Stop: 0.1}
		}, ""},
		"a warning":    {func(r *Report, _ *Measured) { r.Findings = []Finding{{"ignores-stop", Warning, "", ""}} }, ""},
		"fails":        {func(r *Report, _ *Measured) { r.Findings = problem("program-fails") }, "not interruptible: it is wrong. Repair it."},
		"out of time":  {func(r *Report, _ *Measured) { r.Findings = problem("out-of-time") }, "not known: it is wrong. Repair it."},
		"short":        {func(r *Report, _ *Measured) { r.Undisturbed.Seconds = 0.9 }, "one run takes 900ms, too short"},
		"never warned": {func(r *Report, _ *Measured) { r.Evictions = r.Evictions[1:] }, "before a notice could stop it"},
	} {
		r, m := good, want
		r.Evictions = append([]Eviction{}, good.Evictions...)
		row.change(&r, &m)
		got, err := r.measured()
		if row.err != "" {
			if err == nil || !strings.Contains(err.Error(), row.err) {
				t.Errorf("%s: %v, want %q", name, err, row.err)
			}
			continue
		}
		if diff := cmp.Diff(m, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestMeasure measures programs that save nothing, fail, or never end. Package main of the lab
// measures a program that saves.
func TestMeasure(t *testing.T) {
	proof.Only(t, "it runs real workers; TestRun is its quick part")
	need.NotOn(t, "windows", "its programs are stopped by SIGTERM")
	for name, row := range map[string]struct {
		command []string
		timeout time.Duration
		err     error
		good    func(m Measured) bool
	}{
		"nothing.sh": {[]string{"sh", filepath.Join("testdata", "nothing.sh")}, 0, nil, func(m Measured) bool {
			return m.Seconds >= 1.4 && m.StateBytes == 0 && m.StateEvery == 0 && !m.AtNotice
		}},
		"fails.sh": {[]string{"sh", filepath.Join("testdata", "fails.sh")}, 0, ErrNotInterruptible, nil},
		"endless":  {[]string{"sleep", "1000"}, 5 * time.Second, ErrNotTried, nil},
	} {
		t.Run(name, func(t *testing.T) {
			need.Command(t, row.command[0])
			t.Parallel()
			c := DefaultConfig()
			c.Command = row.command
			if row.timeout > 0 {
				c.Timeout = row.timeout
			}
			var out bytes.Buffer
			m, err := Measure(t.Context(), c, &out)
			if !errors.Is(err, row.err) || row.err == nil && (err != nil || !row.good(m)) {
				t.Errorf("Measure = %+v, %v, want %v\n%s", m, err, row.err, out.String())
			}
		})
	}
}
