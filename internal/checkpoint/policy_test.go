package checkpoint

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPolicyNext(t *testing.T) {
	p := Policy{Interval: 5 * time.Second, FirstAfter: 10 * time.Second, TouchEvery: 5 * time.Minute}
	at := func(d time.Duration) time.Time { return noon.Add(d) }
	never := time.Time{}
	for _, row := range []struct {
		name string
		p    Policy
		job  Situation
		now  time.Duration
		due  Due
		wait time.Duration
	}{
		{"just begun", p, Situation{Since: noon, Written: false, WrittenAt: never, Changed: false}, 0, Nothing, 5 * time.Second},
		{"first state, too soon", p, Situation{Since: noon, Written: false, WrittenAt: never, Changed: true}, 3 * time.Second, Nothing, 2 * time.Second},
		{"first state", p, Situation{Since: noon, Written: false, WrittenAt: never, Changed: true}, 5 * time.Second, DueSave, 0},
		{"nothing reported yet", p, Situation{Since: noon, Written: false, WrittenAt: never, Changed: false}, 7 * time.Second, Nothing, 3 * time.Second},
		{"nothing reported for 10 s", p, Situation{Since: noon, Written: false, WrittenAt: never, Changed: false}, 10 * time.Second, DueTouch, 0},
		{"resumed, nothing reported", p, Situation{Since: noon, Written: true, WrittenAt: never, Changed: false}, 10 * time.Second, Nothing, 5 * time.Second},
		{"saved, nothing new", p, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: false}, 2 * time.Minute, Nothing, 5 * time.Second},
		{"saved, new state too soon", p, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: true}, time.Minute + time.Second, Nothing, 4 * time.Second},
		{"saved, new state", p, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: true}, time.Minute + 5*time.Second, DueSave, 0},
		{"silent for 5 min", p, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: false}, 6 * time.Minute, DueTouch, 0},
		{"first write failed, retried like any", p, Situation{Since: noon, Written: false, WrittenAt: at(10 * time.Second), Changed: true}, 15 * time.Second, DueSave, 0},
		{"interval longer than the touch: what is written then is the state", Policy{Interval: time.Hour, FirstAfter: 10 * time.Second, TouchEvery: 5 * time.Minute}, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: true}, 6 * time.Minute, DueSave, 0},
		{"after unclean exits, nothing reported yet", p, Situation{Since: noon, Written: true, WrittenAt: never, Unproven: true}, time.Second, Nothing, minInterval},
		{"after unclean exits, first state", p, Situation{Since: noon, Written: true, WrittenAt: never, Changed: true, Unproven: true}, time.Millisecond, DueSave, 0},
		{"after unclean exits, nothing reported for 10 s", p, Situation{Since: noon, Written: true, WrittenAt: never, Unproven: true}, 10 * time.Second, DueTouch, 0},
		{"after unclean exits, written, new state too soon", Policy{}, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: true, Unproven: true}, time.Minute + time.Second, Nothing, 4 * time.Second},
		{"zero values are the defaults", Policy{}, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: false}, 2 * time.Minute, Nothing, 5 * time.Second},
		{"zero values are the defaults: save", Policy{}, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: true}, time.Minute + time.Second, Nothing, 4 * time.Second},
	} {
		due, wait := row.p.Next(row.job, at(row.now))
		if due != row.due || wait != row.wait {
			t.Errorf("%s: Next = %d in %s, want %d in %s", row.name, due, wait, row.due, row.wait)
		}
	}
}

// A worker that does what the policy says, when it says so, writes never sooner
// than an interval after the write before and never later than TouchEvery, and
// records every state within an interval and what the write before takes.
func TestPolicyKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			Interval:   time.Duration(rapid.IntRange(1, 600).Draw(t, "interval")) * time.Second,
			FirstAfter: time.Duration(rapid.IntRange(1, 60).Draw(t, "first")) * time.Second,
			TouchEvery: 10 * time.Minute,
		}
		job := Situation{Since: noon, Written: rapid.Bool().Draw(t, "resumed")}
		now, last := noon, noon
		var reported time.Time // of the oldest state that is not recorded
		for range 200 {
			due, wait := p.Next(job, now)
			if due == Nothing {
				if wait <= 0 || wait > p.Interval {
					t.Fatalf("nothing is due, look again in %s, want up to %s", wait, p.Interval)
				}
				if !job.Changed && rapid.Bool().Draw(t, "report") {
					job.Changed, reported = true, now.Add(wait/2)
				}
				now = now.Add(wait)
				continue
			}
			since := now.Sub(last)
			first := !job.Written
			if since > p.TouchEvery || !first && due == DueSave && since < p.Interval || first && since < min(p.Interval, p.FirstAfter) {
				t.Fatalf("write %d %s after the one before, interval %s", due, since, p.Interval)
			}
			if due == DueTouch && job.Changed {
				t.Fatal("a touch is due although a state is not recorded")
			}
			if due == DueSave && now.Sub(reported) > p.Interval {
				t.Fatalf("state recorded %s after its report, want within %s", now.Sub(reported), p.Interval)
			}
			job.Written, job.WrittenAt, job.Changed, last = true, now, false, now
		}
	})
}

func TestDefaultPolicy(t *testing.T) {
	if got, want := DefaultPolicy(), (Policy{}.orDefaults()); got != want {
		t.Errorf("DefaultPolicy = %+v, want what the zero value means, %+v", got, want)
	}
	if err := (Policy{}).Validate(); err != nil {
		t.Errorf("Validate of the zero value = %v, want nil", err)
	}
	if p := DefaultPolicy(); 2*p.TouchEvery >= StaleAfter {
		t.Errorf("a running job is touched every %s; a duplicate takes over after %s", p.TouchEvery, StaleAfter)
	}
}
