package drain

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestGateSmallestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const large = smallWrite + 1 // a write that keeps its place for as long as it takes
		g := NewGate(1)
		leave, err := g.Enter(t.Context(), large)
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan int, 3)
		for _, size := range []int{3 * large, large, 2 * large} {
			go func() {
				leave, err := g.Enter(t.Context(), size)
				if err != nil {
					t.Error(err)
					return
				}
				order <- size
				leave()
			}()
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.Enter(gone, large); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("enter with no time = %v, want %v", err, context.DeadlineExceeded)
		}
		leave()
		for _, want := range []int{large, 2 * large, 3 * large} {
			if got := <-order; got != want {
				t.Errorf("admitted size %d, want %d", got, want)
			}
		}
	})
}

// TestGatePassesAPlaceOn: a place is not lost when the write that it was
// given to gives up at the same moment.
func TestGatePassesAPlaceOn(t *testing.T) {
	const large = smallWrite + 1 // which keeps its place
	for range 1000 {
		g := NewGate(1)
		leave, err := g.Enter(t.Context(), large)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			if leave, err := g.Enter(ctx, large); err == nil {
				leave()
			}
		}()
		for isWaiting := false; !isWaiting; {
			g.mu.Lock()
			isWaiting = g.waiting.Len() == 1
			g.mu.Unlock()
			runtime.Gosched() // with one processor the write runs only then, or 10 ms later
		}
		cancel() // which wakes the write, and before it runs the place is given to it
		leave()
		<-left
		g.mu.Lock()
		taken, waiting := g.taken, g.waiting.Len()
		g.mu.Unlock()
		if taken != 0 || waiting != 0 {
			t.Fatalf("taken places = %d, waiting = %d, want 0 and 0", taken, waiting)
		}
	}
}

// TestGateFollowsLatency: small writes that take long let others in, large ones
// do not, and no place is given back twice.
func TestGateFollowsLatency(t *testing.T) {
	for _, row := range []struct {
		size int
		want time.Duration // until the second write may begin
	}{{10, smallWriteHolds}, {smallWrite + 1, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			g := NewGate(1)
			first, err := g.Enter(t.Context(), row.size)
			if err != nil {
				t.Fatal(err)
			}
			asked := time.Now()
			time.AfterFunc(time.Minute, first)
			second, err := g.Enter(t.Context(), row.size)
			if waited := time.Since(asked); err != nil || waited != row.want {
				t.Errorf("a write of %d bytes waited %s for the one before (%v), want %s", row.size, waited, err, row.want)
			}
			time.Sleep(2 * time.Minute)
			second()
			synctest.Wait()
			if g.taken != 0 {
				t.Errorf("taken places finally = %d, want 0", g.taken)
			}
		})
	}
}
