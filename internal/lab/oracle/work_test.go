package oracle

import (
	"testing"
	"time"
)

func TestMeasure(t *testing.T) {
	noon := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	// run makes a trace from seconds since noon.
	run := func(began, ended, from int, finished bool, steps ...int) Run {
		at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
		r := Run{Began: at(began), Ended: at(ended), From: from, Finished: finished}
		for _, s := range steps {
			r.Steps = append(r.Steps, at(s))
		}
		return r
	}
	for name, row := range map[string]struct {
		runs        []Run
		ran, useful int
	}{
		"no run":                       {nil, 0, 0},
		"one run":                      {[]Run{run(0, 35, 0, true, 10, 20, 30)}, 35, 35},
		"never finished":               {[]Run{run(0, 35, 0, false, 10, 20, 30)}, 35, 0},
		"killed, resumed after a step": {[]Run{run(0, 25, 0, false, 10, 20), run(60, 90, 1, true, 70, 80)}, 55, 40},
		"killed, resumed from nothing": {[]Run{run(0, 25, 0, false, 10, 20), run(60, 95, 0, true, 70, 80, 90)}, 60, 35},
		"killed three times": {[]Run{run(0, 25, 0, false, 10, 20), run(60, 61, 2, false), run(70, 85, 2, false, 80),
			run(100, 111, 3, true, 110)}, 52, 41},
		"the first one worked on, in vain":   {[]Run{run(0, 90, 0, false, 10, 20, 70), run(60, 90, 2, true, 80)}, 120, 50},
		"a step of a run that is not traced": {[]Run{run(60, 90, 2, true, 80)}, 30, 30},
		"a run without progress between":     {[]Run{run(0, 25, 0, false, 10, 20), run(30, 45, 0, false, 40), run(60, 90, 1, true, 80)}, 70, 40},
	} {
		got := Measure(row.runs)
		if got.Ran != time.Duration(row.ran)*time.Second || got.Useful != time.Duration(row.useful)*time.Second ||
			got.Lost() != got.Ran-got.Useful {
			t.Errorf("%s: %+v, want %d s, of which %d useful", name, got, row.ran, row.useful)
		}
	}
}
