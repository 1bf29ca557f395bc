package preempt

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/emulator/imds"
)

// Whenever requests are wanted, no second has more than the budget allows, and
// none waits longer than that takes.
func TestBudgetHoldsInAnySecond(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b budget
		now := noon
		var granted []time.Time
		for _, gap := range rapid.SliceOfN(rapid.IntRange(0, 700), 1, 40).Draw(t, "gaps in ms") {
			now = now.Add(time.Duration(gap) * time.Millisecond)
			at := b.reserve(now)
			if at.Before(now) {
				t.Fatalf("reserve at %s = %s, want no earlier", now, at)
			}
			if n := len(granted); n >= budgetRequests && at.Sub(granted[n-budgetRequests]) < budgetWindow {
				t.Fatalf("%d requests within %s", budgetRequests+1, at.Sub(granted[n-budgetRequests]))
			}
			if n := len(granted); n < budgetRequests && !at.Equal(now) {
				t.Fatalf("request %d waits %s, want none", n+1, at.Sub(now))
			}
			granted = append(granted, at)
		}
	})
}

func TestBudgetDoesNotDelayWhatFits(t *testing.T) {
	var b budget
	for i := range 40 {
		now := noon.Add(time.Duration(i) * budgetWindow / budgetRequests)
		if at := b.reserve(now); !at.Equal(now) {
			t.Errorf("request %d waits %s, want none", i+1, at.Sub(now))
		}
	}
}

func TestCallsOfAClientShareOneBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, vm, c := emulate(t, imds.Options{})
		begin := time.Now()
		for i := range 3 * budgetRequests {
			var err error
			if i%2 == 0 {
				_, err = c.Events(t.Context())
			} else {
				_, err = c.Instance(t.Context())
			}
			if err != nil {
				t.Fatalf("call %d: %v", i+1, err)
			}
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("%d calls took %s, want 2s", 3*budgetRequests, took)
		}
		if busiest := vm.Stats().BusiestSecond; busiest != budgetRequests {
			t.Errorf("%d requests in the busiest second, want %d", busiest, budgetRequests)
		}
	})
}

func TestWaitingForTheBudgetEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, vm, c := emulate(t, imds.Options{})
		for range budgetRequests {
			if _, err := c.Events(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begin := time.Now()
		if _, err := c.Events(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("call beyond the budget = %v, want context.DeadlineExceeded", err)
		}
		if took := time.Since(begin); took != 100*time.Millisecond {
			t.Errorf("it took %s, want 100ms", took)
		}
		if n := vm.Stats().Requests; n != budgetRequests {
			t.Errorf("%d requests arrived, want %d", n, budgetRequests)
		}
	})
}
