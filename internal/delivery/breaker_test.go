package delivery

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/job"
)

// ends lets jobs of one kind begin and end at once, and returns the breaker.
func ends(b breaker, now time.Time, runs ...finishedRun) breaker {
	for _, r := range runs {
		_, r.probe = b.wait(now)
		b = b.begin(now)
		r.begun = now
		b = b.end(r, now)
	}
	return b
}

func failuresOf(jobs ...string) (runs []finishedRun) {
	for _, j := range jobs {
		runs = append(runs, finishedRun{job: j, verdict: fails})
	}
	return runs
}

func TestBreakerOpens(t *testing.T) {
	five := failuresOf("a", "b", "c", "d", "e")
	for _, tt := range []struct {
		name string
		runs []finishedRun
		want bool
	}{
		{"four jobs failed", five[:4], false},
		{"five jobs failed", five, true},
		{"one job failed ten times", failuresOf("a", "a", "a", "a", "a", "a", "a", "a", "a", "a"), false},
		{"a success between", append(append(failuresOf("a", "b", "c", "d"), finishedRun{job: "x", verdict: works}), five[:4]...), false},
		{"evictions between", append(append(failuresOf("a", "b", "c", "d"), finishedRun{job: "x"}), five...), true},
		{"evictions alone", []finishedRun{{job: "a"}, {job: "b"}, {job: "c"}, {job: "d"}, {job: "e"}, {job: "f"}}, false},
		{"more jobs run on than failed", []finishedRun{
			{job: "a", verdict: fails, others: 9}, {job: "b", verdict: fails, others: 9}, {job: "c", verdict: fails, others: 9},
			{job: "d", verdict: fails, others: 9}, {job: "e", verdict: fails, others: 9}, {job: "f", verdict: fails, others: 9}}, false},
	} {
		if b := ends(breaker{}, time.Now(), tt.runs...); b.isClosed() == tt.want {
			t.Errorf("%s: closed = %t, want %t", tt.name, b.isClosed(), !tt.want)
		}
	}
}

// TestBreakerRests: each probe that fails doubles the rest, one that succeeds or
// outlasts the failures ends it, and an end that says nothing lets the next begin.
func TestBreakerRests(t *testing.T) {
	now := time.Now()
	b := ends(breaker{}, now, failuresOf("a", "b", "c", "d", "e")...)
	for _, want := range []time.Duration{10, 20, 40, 60, 60} {
		wait, probe := b.wait(now)
		if wait != want*time.Second || probe {
			t.Fatalf("wait = %s, %t, want %s and no probe", wait, probe, want*time.Second)
		}
		now = now.Add(wait)
		if wait, probe = b.wait(now); wait != 0 || !probe {
			t.Fatalf("wait after the rest = %s, %t, want a probe", wait, probe)
		}
		b = ends(b, now, finishedRun{job: "evicted"})
		b = ends(b, now, failuresOf("a")...)
	}
	now = b.until
	probing := b.begin(now)
	if wait, probe := probing.wait(now); wait != minProbe || probe {
		t.Errorf("wait beside a probe = %s, %t, want %s and no second one", wait, probe, minProbe)
	}
	if old := probing.end(finishedRun{job: "old", verdict: works, begun: now.Add(-time.Hour)}, now); old.isClosed() {
		t.Error("a job that began before the breaker opened closed it")
	}
	if won := probing.end(finishedRun{job: "p", verdict: works, begun: now, probe: true}, now.Add(time.Second)); !won.isClosed() {
		t.Error("a probe that succeeded did not close the breaker")
	}
	if wait, _ := probing.wait(now.Add(minProbe)); wait != 0 || !probing.begin(now.Add(minProbe)).isClosed() {
		t.Errorf("wait beside a probe that outlasted the failures = %s, want 0, and a closed breaker", wait)
	}
}

// TestBreakerIsABrakeAlone: where no other machine would do the jobs, rests do not
// grow, and after each as many jobs are tried as it takes to open the breaker.
func TestBreakerIsABrakeAlone(t *testing.T) {
	now, b := time.Now(), breaker{}
	for round := range 4 {
		for i := range breakerAfter {
			if wait, probe := b.wait(now); wait != 0 || probe {
				t.Fatalf("round %d, job %d: wait = %s, %t, want 0 and no probe", round, i, wait, probe)
			}
			b = ends(b, now, finishedRun{job: fmt.Sprint(round, i), verdict: fails, onlyMachine: true})
		}
		wait, _ := b.wait(now)
		if wait != firstCooldown {
			t.Fatalf("round %d: wait = %s, want %s", round, wait, firstCooldown)
		}
		now = now.Add(wait)
	}
	if b = ends(b, now, finishedRun{job: "good", verdict: works}); !b.isClosed() {
		t.Error("a success did not close the breaker")
	}
}

// TestVerdicts: only a run that was not stopped and made no progress speaks against
// the machine.
func TestVerdicts(t *testing.T) {
	failure := errors.New("no")
	evicted := &job.Stop{Reason: job.Evicted}
	for _, tt := range []struct {
		name                  string
		end                   ended
		progressed, elsewhere bool
		want                  runVerdict
	}{
		{name: "a result", want: works},
		{name: "a failure", end: ended{err: failure}, want: fails},
		{name: "a break without progress", end: ended{err: job.Interrupted(failure)}, want: fails},
		{name: "a break with progress", end: ended{err: job.Interrupted(failure)}, progressed: true, want: works},
		{name: "a failure with progress", end: ended{err: failure}, progressed: true, want: works},
		{name: "a failure of a job that failed elsewhere", end: ended{err: failure}, elsewhere: true, want: inconclusive},
		{name: "a permanent error", end: ended{err: job.Permanent(failure)}, want: inconclusive},
		{name: "an eviction", end: ended{err: failure, stop: evicted}, want: inconclusive},
		{name: "an eviction without return", end: ended{err: errAbandoned, abandoned: true, stop: evicted}, want: inconclusive},
		{name: "too long a silence", end: ended{err: failure, stop: &job.Stop{Reason: job.Silent}}, want: fails},
		{name: "too long a run", end: ended{err: failure, stop: &job.Stop{Reason: job.Overrun}}, want: inconclusive},
		{name: "another's record", end: ended{err: failure, conflict: &checkpoint.ConflictError{}}, want: inconclusive},
		{name: "a state that is too large", end: ended{err: failure, fault: failure}, want: inconclusive},
	} {
		if got := tt.end.verdict(tt.progressed, tt.elsewhere); got != tt.want {
			t.Errorf("%s: verdict = %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestClaimable: a worker claims as usual while a kind works or none was met, one
// message for a probe, and nothing while all kinds rest.
func TestClaimable(t *testing.T) {
	now, s := time.Now(), &breakers{}
	want := func(when string, at time.Time, most int, wait time.Duration) {
		t.Helper()
		if gotMost, gotWait := s.claimable(32, at); gotMost != most || gotWait != wait {
			t.Errorf("%s: claimable = %d, %s, want %d, %s", when, gotMost, gotWait, most, wait)
		}
	}
	want("nothing met", now, 32, 0)
	for i := range breakerAfter {
		p, _, ok := s.enter("bad", now)
		if !ok {
			t.Fatalf("job %d may not begin", i)
		}
		s.leave("bad", p, finishedRun{job: fmt.Sprint(i), verdict: fails}, now)
	}
	want("the only kind rests", now, 0, firstCooldown)
	if _, _, ok := s.enter("bad", now); ok {
		t.Error("a job of a kind that rests may begin")
	}
	want("a probe is due", now.Add(firstCooldown), 1, 0)
	if _, _, ok := s.enter("bad", now.Add(firstCooldown)); !ok {
		t.Error("no probe may begin")
	}
	want("a probe runs", now.Add(firstCooldown), 0, minProbe)
	s.enter("good", now)
	want("another kind works", now, 32, 0)
}
