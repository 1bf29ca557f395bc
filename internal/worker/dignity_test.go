package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/job"
)

// TestKillersAmongNeighbours: jobs that kill their process each time end in poison,
// and every healthy job that was claimed with them is done, with one worker and
// with ten. No worker runs two at once that are suspects.
func TestKillersAmongNeighbours(t *testing.T) {
	for _, workers := range []int{1, 10} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) { killersAmongNeighbours(t, b, workers) })
		})
	}
}

func killersAmongNeighbours(t *testing.T, b *bench, workers int) {
	const killers, neighbours = 3, 20
	b.observe()
	for i := range neighbours {
		b.put(fmt.Sprintf("neighbour-%d", i), "steps", "")
		if i < killers {
			b.put(fmt.Sprintf("killer-%d", i), "killer", "")
		}
	}
	work := &steps{n: 8, each: 900 * time.Millisecond}
	var fleet sync.WaitGroup
	over := make(chan struct{})
	for i := range workers {
		fleet.Go(func() { restartAlways(t, b, fmt.Sprintf("vm_%d", i), work, over) })
	}
	b.waitFor("no message left", 12*time.Hour, func() bool { return b.left() == 0 })
	close(over)
	fleet.Wait()
	for i := range neighbours {
		b.checkOutcome(t, fmt.Sprintf("neighbour-%d", i), checkpoint.Done)
	}
	for i := range killers {
		id := fmt.Sprintf("killer-%d", i)
		b.checkOutcome(t, id, checkpoint.Poison)
		if r := b.record(id); r.SilentEnds != maxSilentEnds || !strings.Contains(r.Reason, "without a word") {
			t.Errorf("job %s = %d silent ends, reason %q, want %d, and that it ended without a word", id, r.SilentEnds, r.Reason, maxSilentEnds)
		}
	}
	b.ledger.check(t)
}

// restartAlways is the service manager of one VM: it starts the worker again when
// a job has killed it.
func restartAlways(t *testing.T, b *bench, vm string, work *steps, over <-chan struct{}) {
	for {
		dead := make(chan struct{})
		var p *process
		var once sync.Once
		var suspects atomic.Int32
		killer := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			if b.record(j.ID).SilentEnds >= suspectAfter {
				if n := suspects.Add(1); n > 1 {
					t.Errorf("%s runs %d suspects at once, want one", vm, n)
				}
				defer suspects.Add(-1)
			}
			if sleepFor(ctx, 3*time.Second) {
				once.Do(func() { close(dead) })
			}
			<-ctx.Done()
			return nil, errors.New("killed")
		})
		p = b.start(vm, job.Kinds{"steps": work, "killer": killer}, func(c *Config) { c.Metadata = nil })
		select {
		case <-dead:
			p.kill()
		case <-over:
			p.stop()
			return
		}
		time.Sleep(5 * time.Second)
	}
}

// TestEvictedAThousandTimes: a healthy job is evicted with a notice 500 times, and
// then its VM dies without a word 500 times, each time after some progress. It is
// done in the end, and no attempt was charged.
func TestEvictedAThousandTimes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const each = 500
		var finish atomic.Bool
		work := &steps{n: 1 << 30, each: time.Second}
		healthy := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			if finish.Load() {
				return []byte("at last"), nil
			}
			return work.Run(ctx, j)
		})
		b.put("a", "healthy", "")
		kinds := job.Kinds{"healthy": healthy}
		for i := range each {
			p := b.start(fmt.Sprintf("warned_%d", i), kinds)
			time.Sleep(3 * time.Second)
			id, err := b.metadata.SimulateEviction(p.Host)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if n := len(p.log.find("job released")); n != 1 {
				t.Fatalf("eviction %d: jobs released = %d, want 1", i, n)
			}
			p.kill()
			b.metadata.Complete(id)
		}
		for i := 0; i < each && !b.record("a").Status.Final(); i++ {
			before := b.record("a").StateHash
			p := b.start(fmt.Sprintf("unwarned_%d", i), kinds, func(c *Config) { c.Metadata = nil })
			time.Sleep(37 * time.Second) // until the message is visible, and the first checkpoint
			if r := b.record("a"); r.StateHash == before && !r.Status.Final() {
				t.Fatalf("death %d: no progress after %s", i, 37*time.Second)
			}
			p.kill()
		}
		finish.Store(true)
		b.start("last", kinds)
		b.waitFor("no message left", 5*time.Minute, func() bool { return b.left() == 0 })
		r := b.record("a")
		if r.Status != checkpoint.Done || r.Failures != 0 || r.Interruptions < each-1 || r.Generation < 2*each-1 {
			t.Errorf("record = %s %s, %d failures, %d interruptions, generation %d, want done, 0, %d (the first left no record), at least %d",
				r.Status, r.Reason, r.Failures, r.Interruptions, r.Generation, each-1, 2*each-1)
		}
	})
}
