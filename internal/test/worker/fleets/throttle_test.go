package fleets

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// atLimit holds the work of a fleet in a window of time, with a long backlog on queues
// that are at their limit.
type atLimit struct {
	calls, refused int            // for the queues' messages
	done           int            // jobs
	doneOn         map[string]int // of them, by queue
	shares         []float64      // of the jobs, by worker
}

// fairness returns Jain's index of the workers' shares: 1 if all are the same, 1/n if
// one worker does all jobs.
func (r atLimit) fairness() float64 { return fairness(r.shares) }

// queueFairness is the same for the queues.
func (r atLimit) queueFairness() float64 {
	var shares []float64
	for _, n := range r.doneOn {
		shares = append(shares, float64(n))
	}
	return fairness(shares)
}

// fairness returns Jain's index.
func fairness(shares []float64) float64 {
	var sum, squares float64
	for _, share := range shares {
		sum += share
		squares += share * share
	}
	return sum * sum / (squares * float64(len(shares)))
}

// runAtLimit lets workers do jobs from queues that take that many messages a second each,
// and returns what happens within window, from so long after the start. Each job costs
// its queue two messages, its claim and its deletion.
func runAtLimit(b *rig.Bed, workers, limit int, after, window time.Duration) (r atLimit) {
	queues := queue.Names(b.Jobs.All())
	for i := range int((after+window)/time.Second)*limit*len(queues)/2 + workers*300*len(queues) {
		b.Put(fmt.Sprintf("job-%d", i), "nothing", "1")
	}
	b.Server.SetLimits(&storage.Limits{QueueMessages: limit})
	latency(b, 10*time.Millisecond)
	var mu sync.Mutex // guards r while calls come
	r.doneOn = map[string]int{}
	b.Server.OnResult(func(res storage.Result) {
		if !slices.Contains(queues, res.Queue) || res.Operation == storage.OpGetQueueMetadata {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		r.calls++
		switch {
		case res.Status == http.StatusServiceUnavailable:
			r.refused++
		case res.Operation == storage.OpDeleteMessage:
			r.done++
			r.doneOn[res.Queue]++
		}
	})
	runs := make([]atomic.Int64, workers)
	for i := range workers {
		count := job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
			runs[i].Add(1)
			return nil, nil
		})
		b.Start(fmt.Sprintf("vm_%d", i), job.Kinds{"nothing": count}, rig.DiscardLog, func(c *worker.Config) {
			c.Concurrency, c.Metadata = 64, nil
		})
	}
	time.Sleep(after)
	mu.Lock()
	b.T.Logf("%d workers, the first %s: %d of %d calls refused, %d jobs done", workers, after, r.refused, r.calls, r.done)
	r = atLimit{doneOn: map[string]int{}}
	mu.Unlock()
	for i := range runs {
		runs[i].Store(0)
	}
	time.Sleep(window)
	b.Server.OnResult(nil)
	mu.Lock()
	defer mu.Unlock()
	for i := range runs {
		r.shares = append(r.shares, float64(runs[i].Load()))
	}
	return r
}

// TestAtTheQueuesLimit: workers with a backlog use a queue's limit, share it, and have few
// calls refused. In full, with the limit of Azure; package intake shows longer runs.
func TestAtTheQueuesLimit(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	tests := []struct{ workers, limit, percent int }{{2, 500, 2}}
	if *full {
		tests = append(tests, []struct{ workers, limit, percent int }{{1, 2000, 1}, {2, 2000, 1}, {4, 2000, 1}, {8, 2000, 1}}...)
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d workers, %d messages a second", tt.workers, tt.limit), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				window := time.Duration(repeats(20, 60)) * time.Second
				r := runAtLimit(b, tt.workers, tt.limit, 15*time.Second, window)
				refused := float64(r.refused) / float64(r.calls)
				used := float64(r.done) / (window.Seconds() * float64(tt.limit) / 2)
				t.Logf("%d workers, then %s: %.2f %% of %d calls refused, %.1f %% of the limit used, fairness %.3f (%.0f)",
					tt.workers, window, 100*refused, r.calls, 100*used, r.fairness(), r.shares)
				if refused > float64(tt.percent)/100 {
					t.Errorf("calls refused = %.2f %%, want at most %d %%", 100*refused, tt.percent)
				}
				if used < 0.9 {
					t.Errorf("jobs done = %.1f %% of the limit, want at least 90 %%", 100*used)
				}
				if f := r.fairness(); f < 0.75 {
					t.Errorf("fairness = %.3f, want at least 0.75: %.0f", f, r.shares)
				}
			})
		})
	}
}
