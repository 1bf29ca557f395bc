package retry

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	for _, row := range []struct {
		name        string
		sleep, ends time.Duration // the context ends after ends, never if negative
		want        time.Duration
		cut         bool
	}{
		{"to its end", time.Minute, -1, time.Minute, false},
		{"until the context ends", time.Minute, time.Second, time.Second, true},
		{"no time", 0, -1, 0, false},
		{"negative time", -time.Second, -1, 0, false},
		{"in an ended context", time.Minute, 0, 0, true},
		{"no time, in an ended context", 0, 0, 0, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cause := errors.New("stopped")
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if row.ends == 0 {
					cancel(cause)
				} else if row.ends > 0 {
					defer time.AfterFunc(row.ends, func() { cancel(cause) }).Stop()
				}
				begun := time.Now()
				err := Sleep(ctx, row.sleep)
				if took := time.Since(begun); took != row.want {
					t.Errorf("Sleep(%s) took %s, want %s", row.sleep, took, row.want)
				}
				if (err != nil) != row.cut || err != nil && !errors.Is(err, cause) {
					t.Errorf("Sleep(%s) = %v, want the context's cause: %t", row.sleep, err, row.cut)
				}
			})
		})
	}
}

func TestBackoff(t *testing.T) {
	seconds := Backoff{First: time.Second, Max: 10 * time.Second}
	for _, row := range []struct {
		backoff  Backoff
		failures int
		want     time.Duration
	}{
		{seconds, -1, 0},
		{seconds, 0, 0},
		{seconds, 1, time.Second},
		{seconds, 2, 2 * time.Second},
		{seconds, 4, 8 * time.Second},
		{seconds, 5, 10 * time.Second},
		{seconds, math.MaxInt, 10 * time.Second},
		{Backoff{First: time.Second, Max: 8 * time.Second}, 4, 8 * time.Second},
		{Backoff{First: time.Second, Max: 8 * time.Second}, 5, 8 * time.Second},
		{Backoff{First: time.Minute, Max: time.Second}, 1, time.Second},
		{Backoff{First: 1, Max: math.MaxInt64}, 63, 1 << 62},
		{Backoff{First: 2, Max: math.MaxInt64}, 63, math.MaxInt64},
		{Backoff{}, 9, 0},
	} {
		if got := row.backoff.Delay(row.failures); got != row.want {
			t.Errorf("%+v.Delay(%d) = %s, want %s", row.backoff, row.failures, got, row.want)
		}
	}
}

func TestJitter(t *testing.T) {
	least := Jitter{Random: func(time.Duration) time.Duration { return 0 }}
	most := Jitter{Random: func(n time.Duration) time.Duration { return n - 1 }}
	if got := least.Vary(time.Minute); got != 45*time.Second {
		t.Errorf("least = %s, want 45s", got)
	}
	if got := most.Vary(time.Minute); got != 75*time.Second-1 {
		t.Errorf("most = %s, want just less than 75s", got)
	}
	for _, d := range []time.Duration{0, 1, -time.Second} {
		if got := (Jitter{}).Vary(d); got != d {
			t.Errorf("Vary(%s) = %s, want it unchanged", d, got)
		}
	}
	if got, want := most.Spread(time.Minute), time.Minute-1; got != want || least.Spread(time.Minute) != 0 || least.Spread(0) != 0 {
		t.Errorf("Spread(1m) = up to %s, want up to %s, from 0 on", got, want)
	}
	for range 1000 {
		if got := (Jitter{}).Spread(time.Second); got < 0 || got >= time.Second {
			t.Fatalf("Spread(1s) = %s, want less", got)
		}
		if got := (Jitter{}).Vary(time.Second); got < 750*time.Millisecond || got >= 1250*time.Millisecond {
			t.Fatalf("Vary(1s) = %s, want it within a quarter", got)
		}
	}
}
