package jobtest

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// TestPlan: for every handler and budget, a plan has the properties that its users rely
// on.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reports, checks := rapid.IntRange(0, 5000).Draw(t, "reports"), rapid.IntRange(0, 5000).Draw(t, "checks")
		budget, seed := rapid.IntRange(leastRuns-3, 1000).Draw(t, "budget"), rapid.Uint64().Draw(t, "seed")
		jobs, sampled := plan(reports, checks, budget, seed)
		runs := 0
		for _, job := range jobs {
			runs += len(job) + 1
			for _, m := range job {
				checkMoment(t, m, reports, checks)
			}
		}
		if runs > budget {
			t.Errorf("plan takes %d runs, want at most %d", runs, budget)
		}
		if !sampled {
			checkAll(t, jobs, reports, checks)
		}
		if again, _ := plan(reports, checks, budget, seed); !reflect.DeepEqual(again, jobs) {
			t.Error("the same seed made two plans")
		}
	})
}

// checkMoment checks that a run reaches the moment.
func checkMoment(t *rapid.T, m moment, reports, checks int) {
	switch {
	case m.place == atReport && (m.n < 1 || m.n > reports),
		m.place == atCheck && (m.n < 1 || m.n > checks || m.kill),
		m.place == atReport && m.recorded > m.n, m.recorded > reports, m.recorded < 0, !m.kill && m.recorded != 0:
		t.Errorf("moment %+v of a run with %d reports and %d checks: there is none such", m, reports, checks)
	}
}

// checkAll: unless it is a sample, no moment is left out.
func checkAll(t *rapid.T, jobs []interruptions, reports, checks int) {
	has := map[moment]bool{}
	for _, job := range jobs {
		if len(job) == 1 {
			has[job[0]] = true
		}
	}
	for n := 1; n <= reports; n++ {
		if !has[moment{place: atReport, n: n}] || !has[moment{place: atReport, n: n, kill: true, recorded: n}] {
			t.Errorf("report %d of %d is left out", n, reports)
		}
	}
	for n := 1; n <= checks; n++ {
		if !has[moment{place: atCheck, n: n}] {
			t.Errorf("check %d of %d is left out", n, checks)
		}
	}
	for _, m := range []moment{{place: atStart}, {place: atEnd, kill: true}, {place: atEnd, kill: true, recorded: reports}} {
		if !has[m] {
			t.Errorf("moment %+v is left out", m)
		}
	}
}

// TestSample: the ends belong to it, and every part between has its share.
func TestSample(t *testing.T) {
	jobs, sampled := plan(1000, 0, 300, 7)
	if !sampled {
		t.Fatal("a plan of 300 runs for 1000 reports is not called a sample")
	}
	noticed := map[int]bool{}
	for _, job := range jobs {
		if m := job[0]; len(job) == 1 && m.place == atReport && !m.kill {
			noticed[m.n] = true
		}
	}
	if !noticed[1] || !noticed[1000] {
		t.Errorf("reports with an eviction = %v, want the first and the last among them", noticed)
	}
	for from := 1; from <= 1000; from += 100 {
		n := 0
		for r := from; r < from+100; r++ {
			if noticed[r] {
				n++
			}
		}
		if n == 0 {
			t.Errorf("no eviction in reports %d to %d", from, from+99)
		}
	}
	if again, _ := plan(1000, 0, 300, 8); reflect.DeepEqual(again, jobs) {
		t.Error("two seeds made the same plan")
	}
}
