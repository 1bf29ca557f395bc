package active

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
)

// TestLock: deliveries of one id get its lock in the order in which they came, only the
// first waiting delivery waits at all, and a delivery that leaves the queue is passed over.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSet()
		first, second, third := s.LockFor("a"), s.LockFor("a"), s.LockFor("a")
		other := s.LockFor("b")
		if !first.First() || !other.First() || second.First() {
			t.Error("the first delivery of an id is another than the one that came first")
		}
		begun := time.Now()
		if second.Wait(t.Context(), time.Minute) || time.Since(begun) != time.Minute {
			t.Errorf("the second delivery waited %s, want a minute and no lock", time.Since(begun))
		}
		begun = time.Now()
		if third.Wait(t.Context(), time.Minute) || time.Since(begun) != 0 {
			t.Errorf("the third delivery waited %s, want no time and no lock", time.Since(begun))
		}
		second.Unlock()
		first.Unlock()
		first.Unlock()
		if !third.Wait(t.Context(), time.Minute) {
			t.Error("the third delivery has no lock although those before it have unlocked")
		}
		third.Unlock()
		if last := s.LockFor("a"); !last.First() {
			t.Error("a delivery waits for a lock that is free")
		}
	})
}

// TestJobs: an id is active as long as one of its deliveries is.
func TestJobs(t *testing.T) {
	s := NewSet()
	s.AddJob("b")
	s.AddJob("a")
	s.AddJob("a")
	s.RemoveJob("a")
	s.RemoveJob("b")
	if got := s.Jobs(); len(got) != 1 || got[0] != "a" {
		t.Errorf("Jobs = %v, want a alone", got)
	}
}

// TestRemovedLease: the end of an earlier delivery leaves a later one of its message alone.
func TestRemovedLease(t *testing.T) {
	s := NewSet()
	before, after := &queue.Lease{ID: "m"}, &queue.Lease{ID: "m"}
	s.AddLease(before)
	s.RemoveLease(before)
	if s.Adopt(after) {
		t.Error("a message without a delivery was adopted")
	}
	s.AddLease(after)
	s.RemoveLease(before)
	if !s.Adopt(&queue.Lease{ID: "m"}) {
		t.Error("the active message was not adopted")
	}
}
