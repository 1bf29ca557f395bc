package ledger

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestAfter(t *testing.T) {
	before := Ledger{Useful: 10 * time.Minute, Redone: time.Minute, Overhead: 5 * time.Second, Evictions: 2, Exits: 1}
	d := Delivery{Slot: 100 * time.Second, Handler: 90 * time.Second, End: 200 * time.Millisecond}
	for name, row := range map[string]struct {
		delivery Delivery
		saved    time.Duration
		last     bool
		want     Ledger
	}{
		"nothing yet":             {Delivery{End: time.Hour}, 0, false, before},
		"nothing is saved":        {d, 0, false, Ledger{10 * time.Minute, 150 * time.Second, 15 * time.Second, 2, 1}},
		"a report is saved":       {d, time.Minute, false, Ledger{11 * time.Minute, 90 * time.Second, 15 * time.Second, 2, 1}},
		"the end":                 {d, 90 * time.Second, true, Ledger{690 * time.Second, time.Minute, 15200 * time.Millisecond, 2, 1}},
		"saved more than it ran":  {d, time.Hour, false, Ledger{690 * time.Second, time.Minute, 15 * time.Second, 2, 1}},
		"saved less than nothing": {d, -time.Hour, false, Ledger{10 * time.Minute, 150 * time.Second, 15 * time.Second, 2, 1}},
		"the handler ran outside": {Delivery{Slot: time.Second, Handler: 2 * time.Second}, 0, false, Ledger{10 * time.Minute, 62 * time.Second,
			5 * time.Second, 2, 1}},
		"before the handler": {Delivery{Slot: 3 * time.Second}, 0, false, Ledger{10 * time.Minute, time.Minute, 8 * time.Second, 2, 1}},
	} {
		if got := After(before, row.delivery, row.saved, row.last); got != row.want {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
	}
	lost := before.WithoutProgress()
	if lost.Useful != 0 || lost.Redone != 11*time.Minute || lost.Total() != before.Total() {
		t.Errorf("without its progress: %+v, want 11 min redone and the same total", lost)
	}
}

func TestLost(t *testing.T) {
	const visibility, renew = 30 * time.Second, 10 * time.Second
	for name, row := range map[string]struct {
		claimed, next, want time.Duration
		otherMessage        bool
	}{
		"died soon after a save":           {claimed: 25 * time.Second, next: time.Minute, want: 2500 * time.Millisecond},
		"died before the save was seen":    {claimed: 20 * time.Second, next: time.Minute, want: 0},
		"claimed as soon as it was there":  {claimed: 70 * time.Second, next: time.Minute, want: 45 * time.Second},
		"at the end of the interval":       {claimed: 86 * time.Second, next: time.Minute, want: 58 * time.Second},
		"the message waited":               {claimed: time.Hour, next: time.Minute, want: 30 * time.Second},
		"saved more often than it renewed": {claimed: 35 * time.Second, next: 8 * time.Second, want: 4 * time.Second},
		"another message":                  {claimed: 70 * time.Second, next: time.Minute, want: 30 * time.Second, otherMessage: true},
		"it did not say":                   {claimed: 70 * time.Second, next: 0, want: 0},
		"clocks disagree":                  {claimed: -time.Hour, next: time.Minute, want: 0},
	} {
		about := Takeover{Claimed: row.claimed, Visibility: visibility, RenewEvery: renew}
		if row.otherMessage {
			about = Takeover{}
		}
		if got := about.Lost(row.next); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}

// TestLostAddsUp: the estimates of many deaths add up to the loss, for intervals short
// and long, and however long messages wait.
func TestLostAddsUp(t *testing.T) {
	const visibility, renew, deaths = 30 * time.Second, 10 * time.Second, 20_000
	random := rand.New(rand.NewPCG(22, 1))
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Float64() * float64(d)) }
	for _, row := range []struct {
		next, wait time.Duration
		within     float64 // of the loss, on average
	}{
		{200 * time.Millisecond, 0, 0.01},
		{5 * time.Second, time.Second, 0.01},
		{71 * time.Second, 0, 0.01},
		{71 * time.Second, time.Second, 0.02}, // half a second of waiting counts as life
		{10 * time.Minute, 0, 0.01},
		{10 * time.Minute, time.Hour, 0.1},
	} {
		var lost, estimated, worst time.Duration
		for range deaths {
			died := upTo(row.next)
			claimed := died - upTo(renew) + visibility + upTo(row.wait)
			got := Takeover{claimed, visibility, renew}.Lost(row.next)
			if got < 0 || got > row.next {
				t.Fatalf("estimate %s, want 0 to %s", got, row.next)
			}
			lost, estimated, worst = lost+died, estimated+got, max(worst, (got-died).Abs())
		}
		if off := float64(estimated-lost) / float64(lost); math.Abs(off) > row.within {
			t.Errorf("writes every %s, messages that wait up to %s: estimated %s of %s lost, %.1f %% off, want %.0f %%", row.next, row.wait,
				estimated, lost, 100*off, 100*row.within)
		} else {
			t.Logf("writes every %s, waits up to %s: %.2f %% off, a single one by up to %s", row.next, row.wait, 100*off, worst)
		}
	}
}
