package intake

import (
	"math"
	"testing"
	"time"
)

// claimAll claims from a backlog at the rate of p for some time, and returns how many messages.
func claimAll(p *Pace, now *time.Time, within time.Duration) (messages int) {
	for end := now.Add(within); ; messages += batch {
		if p.Due().After(*now) {
			*now = p.Due()
		}
		if now.After(end) {
			*now = end
			return messages
		}
		p.Sent(*now, batch)
		p.Got(batch, batch)
	}
}

// TestPaceBegins: a worker begins with its share of the queue's limit, and a worker alone with
// a second of the limit at once. The rate doubles each second that claims wait for it, and an
// idle worker keeps it.
func TestPaceBegins(t *testing.T) {
	for _, tt := range []struct {
		workers int
		rate    float64
		at      int // messages at once, at least
	}{{0, 125, batch}, {1, 1000, 1000}, {4, 250, batch}, {1000, leastRate, batch}} {
		var p Pace
		p.SetWorkers(tt.workers)
		if got := p.Rate(); got != tt.rate {
			t.Errorf("Rate of a worker of %d = %.0f, want %.0f", tt.workers, got, tt.rate)
		}
		now := time.Now()
		if got := claimAll(&p, &now, 0); got < tt.at || got > 2*tt.at+batch {
			t.Errorf("a worker of %d claims %d messages at once, want %d to %d", tt.workers, got, tt.at, 2*tt.at+batch)
		}
	}

	var p Pace
	p.SetWorkers(8)
	now := time.Now()
	claimAll(&p, &now, time.Second)
	before := p.Rate()
	claimAll(&p, &now, time.Second)
	if got := p.Rate() / before; got < 1.6 || got > 2.4 {
		t.Errorf("Rate after a second of claims = %.2f × the rate before, want about twice", got)
	}
	before = p.Rate()
	now = now.Add(time.Hour)
	p.Sent(now, batch)
	p.Got(batch, 0)
	p.Sent(now.Add(time.Second), batch)
	if got := p.Rate(); got != before {
		t.Errorf("Rate of an idle worker = %.0f, want %.0f as before", got, before)
	}
}

// TestPaceIsCut: refusals cut the rate once a second, the first one by half. Then it grows
// by a few messages a second, until no call was refused for minutes.
func TestPaceIsCut(t *testing.T) {
	var p Pace
	p.SetWorkers(2)
	now := time.Now()
	p.Observe(now, 3)
	p.Observe(now.Add(reaction/2), 9)
	if got := p.Rate(); got != 250 {
		t.Errorf("Rate after the first refusals = %.0f, want half of 500", got)
	}
	now = now.Add(reaction)
	claimAll(&p, &now, 10*time.Second)
	if got := p.Rate(); math.Abs(got-325) > 5 {
		t.Errorf("Rate 10 s later = %.0f, want 325", got)
	}
	p.Refused(now)
	if got := p.Rate() / 325; got < 1-mostCut-0.02 || got > 1-leastCut+0.02 {
		t.Errorf("Rate after another refusal = %.2f of the rate before", got)
	}
	if got := p.Due().Sub(now); got < reaction/4 {
		t.Errorf("next claim is due %s after a claim that was refused, want %s", got, reaction/4)
	}
	now = now.Add(remembered + time.Second)
	before := p.Rate()
	claimAll(&p, &now, time.Second)
	if got := p.Rate() / before; got < 1.4 {
		t.Errorf("Rate when the limit is forgotten = %.2f × the rate a second before, want twice", got)
	}
}

// TestPaceSpacesClaims: at a limit, claims come as their messages allow.
func TestPaceSpacesClaims(t *testing.T) {
	now := time.Now()
	p := Pace{cut: now, rate: 320}
	p.Sent(now, batch)
	if got, want := p.Due().Sub(now), 100*time.Millisecond-claimSlack; got != want {
		t.Errorf("Due after a claim = %s, want %s", got, want)
	}
	p.Got(batch, 0)
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
