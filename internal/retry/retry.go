// Package retry has the waits between repeated attempts: an exponential backoff,
// jitter, and a sleep that ends with its context.
//
//	delays := retry.Backoff{First: time.Second, Max: 30 * time.Second}
//	for failures := 1; ; failures++ {
//		if err := try(ctx); err == nil {
//			return nil
//		}
//		if err := retry.Sleep(ctx, delays.Delay(failures)); err != nil {
//			return err
//		}
//	}
//
// What to retry, and when to give up, is the caller's decision.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d and returns nil, or the cause of ctx as soon as that ends. A
// context that has already ended wins over a d that is not positive.
func Sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return context.Cause(ctx)
}

// Backoff is an exponential backoff. Its delays have no jitter: see [Jitter].
type Backoff struct {
	First time.Duration // the first delay; each further one is twice as long
	Max   time.Duration // the longest delay
}

// Delay returns how long to wait after that many failures in a row: 0 for none,
// First for one.
func (b Backoff) Delay(failures int) time.Duration {
	if failures < 1 {
		return 0
	}
	if doublings := min(failures-1, 62); b.First <= b.Max>>doublings {
		return b.First << doublings
	}
	return b.Max
}

// Jitter varies delays at random, so that many workers that wait for the same
// thing do not come back at the same time. The zero value is ready to use.
type Jitter struct {
	// Random returns a random duration in [0, n). The default is [rand.N]; a test
	// that has to repeat exactly supplies its own.
	Random func(n time.Duration) time.Duration
}

// Vary returns d, plus or minus at most a quarter of it.
func (j Jitter) Vary(d time.Duration) time.Duration {
	width := d / 2
	if width <= 0 {
		return d
	}
	return d - d/4 + j.random(width)
}

// Spread returns a duration in [0, d), each as likely as the others.
func (j Jitter) Spread(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return j.random(d)
}

func (j Jitter) random(n time.Duration) time.Duration {
	if j.Random == nil {
		return rand.N(n)
	}
	return j.Random(n)
}
