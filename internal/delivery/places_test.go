package delivery

import (
	"testing"
	"testing/synctest"
	"time"
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
			if got, took := k.wait(t.Context(), slotPatience), time.Since(begun); got != free || took < slotPatience/2 {
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

// TestSlotsLearn: once jobs of a kind are known to take long, none waits in its slot.
func TestSlotsLearn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kindSlots{taken: make(chan struct{}, 1)}
		if !k.wait(t.Context(), slotPatience) {
			t.Fatal("the first job gets no slot")
		}
		k.leave(20 * time.Second)
		k.taken <- struct{}{}
		begun := time.Now()
		if k.wait(t.Context(), slotPatience) || time.Since(begun) != 0 {
			t.Errorf("the next job waited for %s, want it refused at once", time.Since(begun))
		}
	})
}
