package intake

import (
	"math"
	"testing"
	"time"
)

// TestPace: the first refusals set a low limit, from which the rate grows until calls are
// refused again. Then it falls a little or, after many refusals, by their share; it grows
// back to that, slowly past it, and is soon without effect when nothing is refused.
func TestPace(t *testing.T) {
	const second = time.Second
	begun := time.Now()
	at := func(after time.Duration) time.Time { return begun.Add(after) }
	var p Pace
	p.Sent(at(-3*second), 32)
	for i := range 100 { // 1,000 messages a second
		p.Sent(at(time.Duration(i)*time.Millisecond), 32)
		p.Got(at(time.Duration(i)*time.Millisecond), 32, 10)
	}
	if p.Due().After(at(0)) || p.Rate(at(0)) != 0 {
		t.Fatalf("Due before any refusal = %s from now, want at once", p.Due().Sub(at(0)))
	}
	p.Observe(at(second/2), 3)
	checkRates(t, "first refusals", &p, at(second/2), []rateAfter{
		{0, searchFrom, searchFrom}, {second, 105, 120}, {10 * second, 1000, 1200},
	})

	p.Observe(at(second), 4) // of the same second
	if got := p.Rate(at(second)); got < searchFrom {
		t.Errorf("Rate after refusals of the same second = %.0f, want at least %d", got, searchFrom)
	}
	steady := func() Pace { // at 1,000 messages a second
		p := Pace{eased: at(-11 * second), limit: 1000, least: leastCut}
		p.Got(at(-second/2), 32, 1000)
		return p
	}
	p = steady()
	limit := p.Rate(at(0))
	p.Observe(at(0), 1)
	checkRates(t, "one refusal", &p, at(0), []rateAfter{
		{0, 0.93 * limit, 0.93 * limit}, {5 * second, 0.94 * limit, 0.97 * limit}, {13 * second, 0.96 * limit, 0.98 * limit},
		{25 * second, 0.99 * limit, 1.01 * limit}, {2 * 60 * second, 10_000, 100_000},
	})
	p.Got(at(second/2), 32, 1000)
	p.Observe(at(2*second), 2)
	if got, want := p.Rate(at(2*second))/limit, 0.84; got > want {
		t.Errorf("Rate after another refusal 2 s later = %.2f of the limit, want at most %.2f", got, want)
	}
	for _, row := range []struct {
		refused uint64
		left    float64
	}{{200, 0.8}, {5000, 0.5}} {
		p = steady()
		p.Observe(at(0), 1)
		p.Observe(at(second/2), row.refused)
		if got, want := p.Rate(at(0)), row.left*limit; math.Abs(got/want-1) > 0.01 {
			t.Errorf("Rate after %d refusals = %.0f, want %.0f", row.refused, got, want)
		}
	}
}

// TestPaceBegins: the rate of a worker that begins with a backlog grows from rampFrom and is
// soon unlimited. A worker that found the queue empty, or was not refused for a minute, begins
// again. A worker that is refused on the way keeps to the rate so far, rampFrom at least.
func TestPaceBegins(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		name string
		pace Pace
		want float64
	}{
		{"first claim", Pace{}, rampFrom},
		{"a second after the first", Pace{began: now.Add(-time.Second)}, rampFrom * rampGrowth},
		{"three seconds after the first", Pace{began: now.Add(-rampFor)}, 0},
		{"long after a refusal", Pace{eased: now.Add(-forgetting), limit: 500, least: leastCut}, rampFrom},
		{"soon after a refusal", Pace{eased: now.Add(-time.Second), limit: 500, least: leastCut}, 475},
	} {
		row.pace.Sent(now, 32)
		if got := row.pace.Rate(now); math.Abs(got-row.want) > 0.02*row.want {
			t.Errorf("%s: Rate = %.0f, want %.0f", row.name, got, row.want)
		}
	}

	p := Pace{began: now.Add(-time.Minute)}
	p.Got(now, 32, 0)
	p.Sent(now.Add(time.Second), 32)
	if got := p.Rate(now.Add(time.Second)); got != rampFrom {
		t.Errorf("Rate of the first claim after an empty queue = %.0f, want %d", got, rampFrom)
	}

	for got, want := range map[int]float64{1: rampFrom, 400: 400} {
		p := Pace{}
		p.Sent(now, 32)
		p.Got(now, 32, got)
		p.Observe(now.Add(900*time.Millisecond), 1)
		if rate := p.Rate(now.Add(900 * time.Millisecond)); math.Abs(rate-want*(1-leastCut)) > 1 {
			t.Errorf("Rate after a refusal on the way, with %d messages claimed = %.0f, want %.0f", got, rate, want*(1-leastCut))
		}
	}
}

// rateAfter bounds a rate some time after a refusal.
type rateAfter struct {
	after       time.Duration
	least, most float64
}

func checkRates(t *testing.T, what string, p *Pace, since time.Time, rows []rateAfter) {
	t.Helper()
	for _, row := range rows {
		if got := p.Rate(since.Add(row.after)); got < row.least-1 || got > row.most+1 {
			t.Errorf("Rate %s after %s = %.0f, want %.0f to %.0f", row.after, what, got, row.least, row.most)
		}
	}
}

// TestPaceSpacesClaims: at a limit, claims come as their messages allow.
func TestPaceSpacesClaims(t *testing.T) {
	now := time.Now()
	p := Pace{eased: now.Add(-20 * time.Second), limit: 320, least: leastCut}
	rate := p.Rate(now)
	p.Sent(now, 32)
	interval := seconds(32 / rate)
	if got := p.Due().Sub(now); got != interval-burst {
		t.Errorf("Due after a claim = %s, want %s", got, interval-burst)
	}
	p.Got(now, 32, 0)
	if got := p.Due().Sub(now); got > 0 {
		t.Errorf("Due after a claim that found nothing = %s, want at once", got)
	}
}

// TestPressure: refusals of a queue concern that queue; refusals of the account
// concern all of its queues.
func TestPressure(t *testing.T) {
	var p Pressure
	p.Refused("a")
	p.Refused("")
	p.Refused("a")
	if a, b := p.Count("a"), p.Count("b"); a != 3 || b != 1 {
		t.Errorf("Count of a, b = %d, %d, want 3, 1", a, b)
	}
	var none *Pressure
	none.Refused("a")
	if n := none.Count("a"); n != 0 {
		t.Errorf("Count of nothing = %d, want 0", n)
	}
}
