package breaker

import (
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/activity"
)

// ends lets jobs of one kind begin and end at once, and returns the breaker.
func ends(b Breaker, now time.Time, runs ...Run) Breaker {
	for _, r := range runs {
		_, r.probe = b.wait(now)
		b = b.begin(now)
		r.begun = now
		b = b.end(r, now)
	}
	return b
}

func failuresOf(jobs ...string) (runs []Run) {
	for _, j := range jobs {
		runs = append(runs, Run{Job: j, Verdict: Fails})
	}
	return runs
}

func TestBreakerOpens(t *testing.T) {
	five := failuresOf("a", "b", "c", "d", "e")
	for _, tt := range []struct {
		name string
		runs []Run
		want bool
	}{
		{"four jobs failed", five[:4], false},
		{"five jobs failed", five, true},
		{"one job failed ten times", failuresOf("a", "a", "a", "a", "a", "a", "a", "a", "a", "a"), false},
		{"a success between", append(append(failuresOf("a", "b", "c", "d"), Run{Job: "x", Verdict: Works}), five[:4]...), false},
		{"evictions between", append(append(failuresOf("a", "b", "c", "d"), Run{Job: "x"}), five...), true},
		{"evictions alone", []Run{{Job: "a"}, {Job: "b"}, {Job: "c"}, {Job: "d"}, {Job: "e"}, {Job: "f"}}, false},
		{"more jobs run on than failed", []Run{
			{Job: "a", Verdict: Fails, others: 9}, {Job: "b", Verdict: Fails, others: 9}, {Job: "c", Verdict: Fails, others: 9},
			{Job: "d", Verdict: Fails, others: 9}, {Job: "e", Verdict: Fails, others: 9}, {Job: "f", Verdict: Fails, others: 9}}, false},
	} {
		if b := ends(Breaker{}, time.Now(), tt.runs...); b.IsClosed() == tt.want {
			t.Errorf("%s: closed = %t, want %t", tt.name, b.IsClosed(), !tt.want)
		}
	}
}

// TestBreakerRests: each probe that fails doubles the rest, a probe that succeeds or
// outlasts the failures ends it, and an end that says nothing lets the next begin.
func TestBreakerRests(t *testing.T) {
	now := time.Now()
	b := ends(Breaker{}, now, failuresOf("a", "b", "c", "d", "e")...)
	for _, want := range []time.Duration{10, 20, 40, 60, 60} {
		wait, probe := b.wait(now)
		if wait != want*time.Second || probe {
			t.Fatalf("wait = %s, %t, want %s and no probe", wait, probe, want*time.Second)
		}
		now = now.Add(wait)
		if wait, probe = b.wait(now); wait != 0 || !probe {
			t.Fatalf("wait after the rest = %s, %t, want a probe", wait, probe)
		}
		b = ends(b, now, Run{Job: "evicted"})
		b = ends(b, now, failuresOf("a")...)
	}
	now = b.Until
	probing := b.begin(now)
	if wait, probe := probing.wait(now); wait != minProbe || probe {
		t.Errorf("wait beside a probe = %s, %t, want %s and no second one", wait, probe, minProbe)
	}
	if old := probing.end(Run{Job: "old", Verdict: Works, begun: now.Add(-time.Hour)}, now); old.IsClosed() {
		t.Error("a job that began before the breaker opened closed it")
	}
	if won := probing.end(Run{Job: "p", Verdict: Works, begun: now, probe: true}, now.Add(time.Second)); !won.IsClosed() {
		t.Error("a probe that succeeded did not close the breaker")
	}
	if wait, _ := probing.wait(now.Add(minProbe)); wait != 0 || !probing.begin(now.Add(minProbe)).IsClosed() {
		t.Errorf("wait beside a probe that outlasted the failures = %s, want 0, and a closed breaker", wait)
	}
}

// TestStandsOut: a breaker opens if failures and successes alternate here and runs elsewhere
// succeed. It does not open if the kind fails elsewhere too, nothing is known of elsewhere, or
// runs are interrupted and do not fail.
func TestStandsOut(t *testing.T) {
	well, ill := activity.Runs{Done: 200, Failed: 2}, activity.Runs{Done: 100, Failed: 100}
	for name, row := range map[string]struct {
		elsewhere activity.Runs
		failed    bool
		want      int // runs until it opens; 0 for never
	}{
		"runs elsewhere succeed":    {well, true, 10},
		"the kind fails everywhere": {ill, true, 0},
		"no other machine":          {activity.Runs{}, true, 0},
		"interruptions":             {well, false, 0},
	} {
		now, b, opened := time.Now(), Breaker{}, 0
		for i := range 100 {
			r := Run{Job: fmt.Sprint(i), Verdict: Works}
			if i%2 == 1 {
				r = Run{Job: fmt.Sprint(i), Verdict: Fails, Failed: row.failed, Elsewhere: row.elsewhere}
			}
			if b = ends(b, now, r); !b.IsClosed() {
				opened = i + 1
				break
			}
		}
		if opened != row.want || b.StandsOut != (row.want > 0) {
			t.Errorf("%s: opened after %d runs, stands out: %t; want after %d", name, opened, b.StandsOut, row.want)
		}
	}
}

// TestStandsOutUntilProven: a breaker that opened because the machine stands out closes after
// five probes in a row that passed. A failure between them starts the count again. Probes
// after the first one begin at once.
func TestStandsOutUntilProven(t *testing.T) {
	now, s := time.Now(), &Set{}
	run := func(v Verdict) (before, after Breaker) {
		t.Helper()
		p, _, ok := s.Enter("a", now)
		if !ok {
			t.Fatal("no job may begin")
		}
		return s.Leave("a", p, Run{Job: fmt.Sprint(now), Verdict: v, Failed: v == Fails, Elsewhere: activity.Runs{Done: 200}}, now)
	}
	var b Breaker
	for i := range 10 {
		_, b = run([]Verdict{Works, Fails}[i%2])
	}
	for _, passes := range []int{4, 0, 5} {
		if b.IsClosed() || !b.StandsOut {
			t.Fatalf("before %d passes the breaker is %+v, want open", passes, b)
		}
		if _, _, ok := s.Enter("a", b.Until.Add(-time.Second)); ok {
			t.Fatal("a job may begin in the cool-down")
		}
		now = b.Until
		for range passes {
			_, b = run(Works)
		}
		if passes < provenAfter {
			_, b = run(Fails)
		}
	}
	if !b.IsClosed() || b.StandsOut || b.Trips != 0 {
		t.Errorf("after five passes the breaker is %+v, want closed", b)
	}
	if _, b = run(Fails); !b.IsClosed() {
		t.Error("one failure opens it again, want the old failures forgotten")
	}
}

// TestLongProbesProve: probes that outlast the failures pass while they run.
func TestLongProbesProve(t *testing.T) {
	now, s := time.Now(), &Set{}
	for i := range 10 {
		p, _, _ := s.Enter("a", now)
		v := []Verdict{Works, Fails}[i%2]
		s.Leave("a", p, Run{Job: fmt.Sprint(i), Verdict: v, Failed: v == Fails, Elsewhere: activity.Runs{Done: 200}}, now)
	}
	now = now.Add(firstCooldown)
	for i := range provenAfter + 1 {
		p, closed, ok := s.Enter("a", now)
		if !ok || closed != (i == provenAfter) || p.Probe == closed {
			t.Fatalf("probe %d: probe %t, closed %t, may begin %t", i, p.Probe, closed, ok)
		}
		if i < provenAfter {
			if _, _, ok := s.Enter("a", now); ok {
				t.Fatal("two probes at once")
			}
		}
		now = now.Add(minProbe)
	}
}

// TestBreakerIsABrakeAlone: where no other machine would do the jobs, rests do not
// grow, and after each as many jobs are tried as it takes to open the breaker.
func TestBreakerIsABrakeAlone(t *testing.T) {
	now, b := time.Now(), Breaker{}
	for round := range 4 {
		for i := range breakerAfter {
			if wait, probe := b.wait(now); wait != 0 || probe {
				t.Fatalf("round %d, job %d: wait = %s, %t, want 0 and no probe", round, i, wait, probe)
			}
			b = ends(b, now, Run{Job: fmt.Sprint(round, i), Verdict: Fails, OnlyMachine: true})
		}
		wait, _ := b.wait(now)
		if wait != firstCooldown {
			t.Fatalf("round %d: wait = %s, want %s", round, wait, firstCooldown)
		}
		now = now.Add(wait)
	}
	if b = ends(b, now, Run{Job: "good", Verdict: Works}); !b.IsClosed() {
		t.Error("a success did not close the breaker")
	}
}

// TestClaimable: a worker claims as usual while a kind works or none was met, one
// message for a probe, and nothing while all kinds rest.
func TestClaimable(t *testing.T) {
	now, s := time.Now(), &Set{}
	want := func(when string, at time.Time, most int, wait time.Duration) {
		t.Helper()
		if gotMost, gotWait := s.Claimable(32, at); gotMost != most || gotWait != wait {
			t.Errorf("%s: claimable = %d, %s, want %d, %s", when, gotMost, gotWait, most, wait)
		}
	}
	want("nothing met", now, 32, 0)
	for i := range breakerAfter {
		p, _, ok := s.Enter("bad", now)
		if !ok {
			t.Fatalf("job %d may not begin", i)
		}
		s.Leave("bad", p, Run{Job: fmt.Sprint(i), Verdict: Fails}, now)
	}
	want("the only kind rests", now, 0, firstCooldown)
	if _, _, ok := s.Enter("bad", now); ok {
		t.Error("a job of a kind that rests may begin")
	}
	want("a probe is due", now.Add(firstCooldown), 1, 0)
	if _, _, ok := s.Enter("bad", now.Add(firstCooldown)); !ok {
		t.Error("no probe may begin")
	}
	want("a probe runs", now.Add(firstCooldown), 0, minProbe)
	s.Enter("good", now)
	want("another kind works", now, 32, 0)
}
