package drain

import (
	"math"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
)

func TestEstimateRemaining(t *testing.T) {
	begun := time.Now()
	tests := []struct {
		name     string
		from, to float64
		spent    time.Duration
		meanJob  time.Duration
		want     time.Duration
		known    bool
	}{
		{"half done", 0, 0.5, time.Minute, 0, time.Minute, true},
		{"a quarter done", 0, 0.25, time.Minute, time.Hour, 3 * time.Minute, true},
		{"resumed at a half, three quarters done", 0.5, 0.75, time.Minute, 0, time.Minute, true},
		{"all done", 0, 1, time.Minute, 0, 0, true},
		{"more than all", 0, 1.5, time.Minute, 0, 0, true},
		{"resumed and nothing done since", 0.5, 0.5, time.Minute, 0, 0, false},
		{"gone back", 0.5, 0.25, time.Minute, 0, 0, false},
		{"reports nothing, mean time to come", 0, 0, time.Minute, 3 * time.Minute, 2 * time.Minute, true},
		{"reports nothing, mean time is over", 0, 0, 3 * time.Minute, 3 * time.Minute, 0, false},
		{"reports nothing, no mean known", 0, 0, time.Second, 0, 0, false},
		{"hardly anything done", 0, 1e-300, time.Hour, 0, 1 << 62, true},
		{"reports nonsense", 0, math.NaN(), time.Hour, 0, 0, false},
		{"reports infinity", 0, math.Inf(1), time.Hour, 0, 0, true},
	}
	for _, tt := range tests {
		c := Estimate{Begun: begun, From: tt.from, To: tt.to}
		if got, known := c.remaining(begun.Add(tt.spent), tt.meanJob); got != tt.want || known != tt.known {
			t.Errorf("%s: left = %s, %t, want %s, %t", tt.name, got, known, tt.want, tt.known)
		}
	}
}

func TestMayContinue(t *testing.T) {
	now := time.Now()
	half := Estimate{Begun: now.Add(-time.Minute), To: 0.5} // a minute to go
	blank := Estimate{Begun: now}
	in := func(gone time.Duration, closed bool) DepartureState {
		return DepartureState{Gone: now.Add(gone), Closed: closed}
	}
	tests := []struct {
		name string
		DepartureState
		Estimate
		want bool
	}{
		{"nothing announced", DepartureState{}, blank, true},
		{"claiming continues", in(time.Hour, false), blank, true},
		{"time enough", in(5*time.Minute, true), half, true},
		{"just time enough before the margin", in(time.Minute+preempt.DrainMargin, true), half, true},
		{"not before the margin", in(time.Minute+preempt.DrainMargin-1, true), half, false},
		{"not known", in(5*time.Minute, true), blank, false},
	}
	for _, tt := range tests {
		if got := tt.MayContinue(tt.Estimate, now); got != tt.want {
			t.Errorf("%s: MayContinue = %t, want %t", tt.name, got, tt.want)
		}
	}
}

// departureIn is a decision that the VM goes after left.
func departureIn(left time.Duration) preempt.Decision {
	v := preempt.Verdict{Action: preempt.DrainBy, Budget: left}
	return preempt.Decision{Verdict: v, Verdicts: []preempt.Verdict{v}}
}

// TestDepartureCloses: when claiming ends, and when it opens again.
func TestDepartureCloses(t *testing.T) {
	now := time.Now()
	o := NewDeparture()
	expect := func(what string, after, meanJob time.Duration, closed, closing bool) {
		t.Helper()
		p, c := o.CloseIfDue(now.Add(after), meanJob)
		if p.Closed != closed || c != closing {
			t.Errorf("%s: closed, closing = %t, %t, want %t, %t", what, p.Closed, c, closed, closing)
		}
	}
	expect("nothing announced", 0, 0, false, false)
	before := o.Current().Changed
	o.Set(departureIn(15*time.Minute), now)
	select {
	case <-before:
	default:
		t.Error("Changed was not closed by Set")
	}
	expect("announced", 0, 0, false, false)
	if got, want := o.Current().UntilClose(now, 0, time.Hour), 10*time.Minute; got != want {
		t.Errorf("UntilClose = %s, want %s", got, want)
	}
	expect("just before 5 min", 10*time.Minute-1, 0, false, false)
	expect("jobs take 7 min", 8*time.Minute, 7*time.Minute, true, true)
	expect("once closed it stays", 8*time.Minute, time.Second, true, false)
	o.Set(departureIn(7*time.Minute-time.Second), now.Add(8*time.Minute))
	expect("the same time, read again", 8*time.Minute, time.Second, true, false)
	o.Set(departureIn(time.Hour), now.Add(8*time.Minute))
	expect("put off", 8*time.Minute, time.Second, false, false)
	o.Set(preempt.Decision{}, now)
	expect("withdrawn", 24*time.Hour, 0, false, false)
	if got := o.Current().UntilClose(now, time.Hour, time.Minute); got != time.Minute {
		t.Errorf("UntilClose with nothing announced = %s, want the limit", got)
	}
}
