package fleets

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

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

func (a *atOnce) running() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now
}

func (a *atOnce) counts() (most, done int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.most, a.done
}

// TestSlotOnAnotherWorker: a job that is claimed where its kind has no free slot soon runs where
// it has one, though the first worker has claimed both.
func TestSlotOnAnotherWorker(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		heavy := &atOnce{each: time.Minute}
		kinds := job.Kinds{"heavy": job.WithLimits(heavy, job.Limits{Concurrency: 1})}
		for i := range 2 {
			b.Start(fmt.Sprintf("vm_%d", i), kinds)
		}
		for i := range 4 {
			time.Sleep(5 * time.Minute)
			for j := range 2 {
				b.Put(fmt.Sprintf("heavy-%d-%d", i, j), "heavy", "")
			}
			// At the fifth time a worker claims nothing for longer than the job is hidden and the other polls.
			b.WaitFor("both run", 13*time.Second, func() bool { return heavy.running() == 2 })
		}
	})
}

// TestConcurrencyOfAKind: no more jobs of a kind run at once than its limit allows.
// Jobs of other kinds run in the remaining slots, and waiting counts neither as a
// failure nor as an interruption.
func TestConcurrencyOfAKind(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		heavy, light := &atOnce{each: 30 * time.Second}, &atOnce{each: time.Second}
		const n, m = 12, 100
		for i := range n {
			b.Put(fmt.Sprintf("heavy-%d", i), "heavy", "")
		}
		for i := range m {
			b.Put(fmt.Sprintf("light-%d", i), "light", "")
		}
		p := b.Start("vm_0", job.Kinds{"heavy": job.WithLimits(heavy, job.Limits{Concurrency: 2}), "light": light},
			func(c *worker.Config) { c.Concurrency = 6 })
		begun := time.Now()
		b.WaitFor("light jobs done", 2*time.Minute, func() bool { _, done := light.counts(); return done == m })
		// Two slots run light jobs all the time, and two more once the heavy jobs that
		// wait in them have been requeued after 10 s.
		if took := time.Since(begun); took > m*time.Second/2 {
			t.Errorf("%d light jobs of 1 s took %s, want at most %s", m, took, m*time.Second/2)
		}
		b.WaitFor("all done", 20*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if took, least := time.Since(begun), n*30*time.Second/2; took > least*3/2 {
			t.Errorf("%d heavy jobs of 30 s, two at once, took %s, want little more than %s", n, took, least)
		}
		if most, done := heavy.counts(); most != 2 || done != n {
			t.Errorf("heavy jobs at once = %d, done = %d, want 2, %d", most, done, n)
		}
		for i := range n {
			if r := b.Record(fmt.Sprintf("heavy-%d", i)); r.Generation != 1 || r.Failures+r.ChargedExits+r.Interruptions != 0 {
				t.Errorf("record of heavy-%d = %+v, want one claim and nothing counted", i, r)
			}
		}
		if len(p.Log.Find("message deferred")) == 0 {
			t.Error("no job was requeued, so the test covers nothing")
		}
	})
}
