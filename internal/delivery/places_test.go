package delivery

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/test/property"
)

func TestMayWait(t *testing.T) {
	for _, row := range []struct {
		name           string
		limit, waiting int
		usual          time.Duration
		want           bool
	}{
		{"nothing known", 1, 0, 0, true},
		{"one waits already", 1, 1, 0, false},
		{"short jobs", 1, 0, 10 * time.Second, true},
		{"long jobs", 1, 0, 11 * time.Second, false},
		{"long jobs, many at once", 4, 3, 40 * time.Second, true},
		{"as many wait as run", 4, 4, time.Second, false},
	} {
		if got := mayWait(row.limit, row.waiting, row.usual); got != row.want {
			t.Errorf("%s: mayWait = %t, want %t", row.name, got, row.want)
		}
	}
}

func TestRequeueDelay(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 1024).Draw(t, "limit")
		usual := time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "usual"))
		k := kindSlots{taken: make(chan struct{}, limit), average: averaging(usual)}
		nominal := requeueDelay(limit, usual)
		if nominal < minRequeue || nominal > maxRequeue || usual/time.Duration(limit) < maxRequeue && nominal < usual/time.Duration(limit) {
			t.Fatalf("requeueDelay(%d, %s) = %s, want what it takes until a slot is free, within bounds", limit, usual, nominal)
		}
		if got := k.delay(); got < nominal*3/4 || got > nominal*5/4 {
			t.Fatalf("delay = %s, want %s give or take a quarter", got, nominal)
		}
	})
}

func averaging(mean time.Duration) MovingAverage { return MovingAverage{Mean: mean} }

// TestWaitersAreCountedDown: a job that waited for a place and got it, or gave up,
// leaves room for the next to wait.
func TestWaitersAreCountedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kindSlots{taken: make(chan struct{}, 1)}
		for i := range 4 {
			k.taken <- struct{}{}
			free := i%2 == 0
			if free {
				time.AfterFunc(slotPatience/2, func() { <-k.taken })
			}
			begun := time.Now()
			if got, took := k.wait(t.Context()), time.Since(begun); got != free || took < slotPatience/2 {
				t.Fatalf("job %d got a place: %t, after %s, want %t after waiting", i, got, took, free)
			}
			<-k.taken
		}
		if k.waiting != 0 {
			t.Errorf("%d still wait, want none", k.waiting)
		}
	})
}

// TestMovingAverage: the first job is the mean, and each further one moves it by an eighth; no job takes no time.
func TestMovingAverage(t *testing.T) {
	var a MovingAverage
	for _, row := range []struct{ took, want time.Duration }{
		{0, time.Microsecond}, {801 * time.Microsecond, 101 * time.Microsecond}, {101 * time.Microsecond, 101 * time.Microsecond},
	} {
		if a.Add(row.took); a.Mean != row.want {
			t.Errorf("mean after %s = %s, want %s", row.took, a.Mean, row.want)
		}
	}
}

// TestSlotsLearn: once jobs of a kind are known to take long, none waits in its slot, and the message is hidden for that time.
func TestSlotsLearn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kindSlots{taken: make(chan struct{}, 1)}
		if !k.wait(t.Context()) {
			t.Fatal("the first job gets no slot")
		}
		k.leave(20 * time.Second)
		k.taken <- struct{}{}
		begun := time.Now()
		if k.wait(t.Context()) || time.Since(begun) != 0 {
			t.Errorf("the next job waited for %s, want it refused at once", time.Since(begun))
		}
		if got := k.delay(); got < 15*time.Second || got > 25*time.Second {
			t.Errorf("delay = %s, want 20s give or take a quarter", got)
		}
	})
}
