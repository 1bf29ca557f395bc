package worker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/job"
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

func TestGiveWayFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 1024).Draw(t, "limit")
		usual := time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "usual"))
		k := kindSlots{taken: make(chan struct{}, limit), usual: averaging(usual)}
		nominal := requeueDelay(limit, usual)
		if nominal < minRequeue || nominal > maxRequeue || usual/time.Duration(limit) < maxRequeue && nominal < usual/time.Duration(limit) {
			t.Fatalf("giveWayFor(%d, %s) = %s, want what it takes until a place is free, within bounds", limit, usual, nominal)
		}
		if got := k.delay(); got < nominal*3/4 || got > nominal*5/4 {
			t.Fatalf("delay = %s, want %s give or take a quarter", got, nominal)
		}
	})
}

func averaging(mean time.Duration) movingAverage { return movingAverage{mean: mean} }

// atOnce counts how many jobs run at the same time.
type atOnce struct {
	each time.Duration

	mu        sync.Mutex
	now, most int
	done      int
}

func (a *atOnce) Run(ctx context.Context, _ *job.Job) ([]byte, error) {
	a.mu.Lock()
	a.now++
	a.most = max(a.most, a.now)
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.now--
		a.done++
	}()
	select {
	case <-ctx.Done():
	case <-time.After(a.each):
	}
	return nil, context.Cause(ctx)
}

func (a *atOnce) counts() (most, done int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.most, a.done
}

// TestConcurrencyOfAKind: of a limited kind no more run at once than may, other
// kinds go on beside it, and waiting counts as nothing.
func TestConcurrencyOfAKind(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		heavy, light := &atOnce{each: 30 * time.Second}, &atOnce{each: time.Second}
		const n, m = 12, 100
		for i := range n {
			b.put(fmt.Sprintf("heavy-%d", i), "heavy", "")
		}
		for i := range m {
			b.put(fmt.Sprintf("light-%d", i), "light", "")
		}
		p := b.start("vm_0", job.Kinds{"heavy": job.WithLimits(heavy, job.Limits{Concurrency: 2}), "light": light},
			func(c *Config) { c.Concurrency = 6 })
		begun := time.Now()
		b.waitFor("light jobs done", 2*time.Minute, func() bool { _, done := light.counts(); return done == m })
		// Two slots at least are theirs all the time, and two more but for 10 s.
		if took := time.Since(begun); took > m*time.Second/2 {
			t.Errorf("%d light jobs of 1 s took %s, want at most %s", m, took, m*time.Second/2)
		}
		b.waitFor("all done", 20*time.Minute, func() bool { return b.left() == 0 })
		if took, least := time.Since(begun), n*30*time.Second/2; took > least*3/2 {
			t.Errorf("%d heavy jobs of 30 s, two at once, took %s, want little more than %s", n, took, least)
		}
		if most, done := heavy.counts(); most != 2 || done != n {
			t.Errorf("heavy jobs at once = %d, done = %d, want 2, %d", most, done, n)
		}
		for i := range n {
			if r := b.record(fmt.Sprintf("heavy-%d", i)); r.Generation != 1 || r.Failures+r.ChargedExits+r.Interruptions != 0 {
				t.Errorf("record of heavy-%d = %+v, want one claim and nothing counted", i, r)
			}
		}
		if len(p.log.find("job gave way")) == 0 {
			t.Error("no job gave way: the test shows nothing")
		}
	})
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
			if got, took := k.wait(t.Context()), time.Since(begun); got != free || took < slotPatience/2 {
				t.Fatalf("job %d got a place: %t, after %s, want %t after waiting", i, got, took, free)
			}
			<-k.taken
		}
		if k.waiting != 0 {
			t.Errorf("%d are waiting in the end, want none", k.waiting)
		}
	})
}
