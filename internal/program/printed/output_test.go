package printed

import (
	"testing"
	"time"
)

// TestLineBudget: a burst, then so many lines per second, and the burst again
// after a pause.
func TestLineBudget(t *testing.T) {
	var b lineLimit
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	ask := func(times int) (allowed, dropped int) {
		for range times {
			ok, lost := b.allow(now)
			if dropped += lost; ok {
				allowed++
			}
		}
		return allowed, dropped
	}
	for _, row := range []struct {
		after             time.Duration
		ask, allowed, was int
	}{
		{0, 10, 10, 0},
		{0, 1000, LinesBurst - 10, 0},
		{time.Second / LinesPerSec, 10, 1, 1000 - (LinesBurst - 10)},
		{time.Second, 100, LinesPerSec, 9},
		{time.Hour, 1000, LinesBurst, 100 - LinesPerSec},
		{time.Millisecond, 5, 0, 0},
	} {
		now = now.Add(row.after)
		if allowed, dropped := ask(row.ask); allowed != row.allowed || dropped != row.was {
			t.Errorf("%d lines %s later: %d allowed, %d said to be dropped, want %d, %d", row.ask, row.after, allowed, dropped, row.allowed, row.was)
		}
	}
	if got := b.dropped(); got != 1000-LinesBurst+5 {
		t.Errorf("dropped at the end = %d, want %d", got, 1000-LinesBurst+5)
	}
}
