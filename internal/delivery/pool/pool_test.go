package pool

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestPool: a pool runs all functions at once, keeps a bounded number of goroutines for
// the next ones, and none after Wait.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		var ran atomic.Int64
		for _, functions := range []int{maxKept + 10, 3, maxKept} {
			ran.Store(0)
			release := make(chan struct{})
			for range functions {
				p.Go(func() { ran.Add(1); <-release })
			}
			synctest.Wait()
			if got := ran.Load(); got != int64(functions) {
				t.Fatalf("%d functions run at once, want %d", got, functions)
			}
			close(release)
			synctest.Wait()
			if p.kept != maxKept {
				t.Errorf("goroutines kept = %d, want %d", p.kept, maxKept)
			}
		}
		p.Go(func() { ran.Store(-1) })
		p.Wait()
		if ran.Load() != -1 {
			t.Error("Wait returned before the last function")
		}
		if p.kept != 0 {
			t.Errorf("goroutines kept after Wait = %d, want 0", p.kept)
		}
	})
}
