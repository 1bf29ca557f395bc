package deadline

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/test/property"
)

var noon = time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)

const changeover = 10 * time.Minute

// at is a job that began at noon, resumes from a state, and has its deadline after due.
func at(elapsed, due time.Duration, j Job) Job {
	j.Began, j.Now, j.Deadline, j.HasState = noon, noon.Add(elapsed), noon.Add(due), true
	return j
}

func TestJudge(t *testing.T) {
	const h, m = time.Hour, time.Minute
	for _, row := range []struct {
		name      string
		job       Job
		want      Risk
		onRelease bool
		onClaim   bool
		why       string
	}{
		{"no deadline", Job{Now: noon, Estimate: h}, None, false, false, ""},
		{"ahead of the line", at(2*h, 10*h, Job{Estimate: 5 * h, RunTime: 110 * m, Fraction: .36, Losses: 1}), OnTime, false, false,
			"in 8h, and"},
		{"one more interruption cannot be afforded", at(2*h, 5*h+10*m, Job{Estimate: 5 * h, RunTime: 2 * h, Fraction: .4, Losses: 1}), Tight,
			true, true, "in 3h10m, about 3h of work are left, and a move after one more interruption takes 20m"},
		{"no time for a move", at(2*h, 5*h+5*m, Job{Estimate: 5 * h, RunTime: 2 * h, Fraction: .4, Losses: 1}), Tight, true, false, ""},
		{"the estimate says more than is left of the time", at(h, 4*h, Job{Estimate: 5 * h, RunTime: h, Losses: 1}), Tight, true, false, ""},
		{"below the line by more than two changeovers", at(4*h, 10*h, Job{Estimate: 5 * h, RunTime: 90 * m, Fraction: .3, Losses: 2}), Behind,
			true, false, "40 % of the time to its deadline have passed, and 30 % of its work are done"},
		{"below the line by less", at(4*h, 10*h, Job{Estimate: 5 * h, RunTime: 105 * m, Fraction: .35, Losses: 2}), OnTime, false, false, ""},
		{"each interruption costs an hour", at(7*h, 10*h, Job{Estimate: 6 * h, RunTime: 4 * h, Fraction: 2. / 3, Losses: 3}), Tight, true, true,
			"takes 1h10m"},
		{"the deadline passed", at(3*h, 2*h, Job{Estimate: h, Losses: 1}), Late, false, false, "the deadline passed 1h ago"},
		{"the deadline is out of reach", at(h, 2*h, Job{Estimate: 10 * h, Losses: 1}), Late, false, false, "cannot be met"},
		{"the deadline is closer than the estimate from the beginning", at(0, 40*m, Job{Estimate: h}), Tight, true, false, ""},
		{"nothing is known, in the first half of the time", at(h, 10*h, Job{RunTime: h, Losses: 1}), OnTime, false, false, ""},
		{"nothing is known, in the second half", at(6*h, 10*h, Job{RunTime: 5 * h, Losses: 1}), Tight, true, false, ""},
		{"nothing is known and it never ran", at(0, h, Job{}), OnTime, false, false, ""},
		{"it began in the future, by another clock", at(-h, 10*h, Job{Estimate: h, Losses: 1}), OnTime, false, false, ""},
	} {
		v := Judge(row.job, changeover)
		if v.Risk != row.want || v.MovesOnRelease() != row.onRelease || v.MovesOnClaim() != row.onClaim || !strings.Contains(v.Why, row.why) {
			t.Errorf("%s: Judge = %q, moves on release %t, on claim %t, %q; want %q, %t, %t, with %q",
				row.name, v.Risk, v.MovesOnRelease(), v.MovesOnClaim(), v.Why, row.want, row.onRelease, row.onClaim, row.why)
		}
	}
}

func TestWork(t *testing.T) {
	const h, m = time.Hour, time.Minute
	for _, row := range []struct {
		name       string
		job        Job
		done, left time.Duration
		known      bool
	}{
		{"estimate alone", Job{Estimate: 10 * h, RunTime: 4 * h, HasState: true}, 4 * h, 6 * h, true},
		{"it ran for longer than the estimate", Job{Estimate: h, RunTime: 5 * h, HasState: true}, 5 * h, 30 * m, true},
		{"the fraction shows more work than the estimate", Job{Estimate: h, RunTime: 2 * h, Fraction: .5, HasState: true}, 2 * h, 2 * h, true},
		{"the fraction shows less", Job{Estimate: 10 * h, RunTime: h, Fraction: .5, HasState: true}, h, h, true},
		{"the fraction is too small to be sound", Job{Estimate: 10 * h, RunTime: h, Fraction: .01, HasState: true}, 6 * m, 10*h - 6*m, true},
		{"the run is too short for it to be sound", Job{Estimate: 10 * h, RunTime: time.Second, Fraction: .1, HasState: true}, h, 9 * h, true},
		{"small fraction alone", Job{RunTime: 6 * m, Fraction: .01, HasState: true}, 6 * m, 594 * m, true},
		{"nothing", Job{RunTime: h, HasState: true}, h, h, false},
		{"no state", Job{Estimate: 2 * h, RunTime: h, Fraction: .5}, 0, 2 * h, true},
		{"no state and no estimate", Job{RunTime: h, Fraction: .5}, 0, h, false},
		{"all is done", Job{RunTime: h, Fraction: 1, HasState: true}, h, 0, true},
		{"hostile numbers", Job{Estimate: -h, RunTime: math.MaxInt64, Fraction: math.NaN(), HasState: true}, longest, longest, false},
	} {
		got := workOf(row.job)
		if got.done.Round(time.Second) != row.done || got.left.Round(time.Second) != row.left || got.known != row.known {
			t.Errorf("%s: workOf = %v done, %v left, known %t; want %v, %v, %t", row.name, got.done, got.left, got.known, row.done, row.left,
				row.known)
		}
	}
}

// TestJudgeProperties: with any numbers a verdict is consistent, and less time never
// makes a job safer.
func TestJudgeProperties(t *testing.T) {
	durations := rapid.Int64Range(math.MinInt64, math.MaxInt64)
	sane := rapid.Int64Range(0, int64(1000*time.Hour))
	property.Check(t, func(t *rapid.T) {
		numbers := sane
		if rapid.Bool().Draw(t, "hostile") {
			numbers = durations
		}
		draw := func(name string) time.Duration { return time.Duration(numbers.Draw(t, name)) }
		j := Job{
			Now: noon, Began: noon.Add(-draw("elapsed")), Deadline: noon.Add(draw("until")),
			Estimate: draw("estimate"), RunTime: draw("ran"), Fraction: rapid.Float64().Draw(t, "fraction"),
			HasState: rapid.Bool().Draw(t, "state"), Losses: rapid.Int().Draw(t, "losses"),
		}
		change := time.Duration(sane.Draw(t, "changeover"))
		v := Judge(j, change)
		if v.Left < 0 || v.Total < v.Left || v.Risk == None || v.Why == "" {
			t.Fatalf("Judge = %+v", v)
		}
		if v.MovesOnClaim() && !v.MovesOnRelease() {
			t.Fatalf("Judge = %+v: it moves from a VM that it has, and not from one that it loses", v)
		}
		if v.MovesWaiting() && !v.MovesOnRelease() || v.MovesOnClaim() && !v.MovesWaiting() {
			t.Fatalf("Judge = %+v: it moves while it waits, and not when it loses a VM, or when it gets one and not while it waits", v)
		}
		if !j.Deadline.After(j.Now) && v.MovesOnRelease() {
			t.Fatalf("Judge = %+v: it moves after its deadline", v)
		}
		if numbers == sane && v.Risk == OnTime {
			j.Deadline = j.Deadline.Add(time.Hour)
			if later := Judge(j, change); later.Risk == Tight || later.Risk == Late {
				t.Fatalf("with an hour more Judge = %+v, before %+v", later, v)
			}
		}
	})
}
