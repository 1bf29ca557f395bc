package delivery

import (
	"context"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/job"
)

// countKnownFor is how old a count of a queue may be: the jobs of a drain share one.
const countKnownFor = 30 * time.Second

// moveFirst puts a job on the queue First if a stop interrupts it and it would wait behind a backlog,
// and reports whether it did. Other releases and failures leave a job on its queue: they must not
// overtake jobs that wait.
func (s *settlement) moveFirst(ctx context.Context, stop *job.Stop) bool {
	r := s.env
	if !r.usesFirst() || s.isOn(r.Stores.First) || !mayMove(stop, s.isOnDemand()) {
		return false
	}
	b := drain.Backlog{Slots: r.Slots, Queues: 1, Usual: r.runs.mean()}
	if b.Usual == 0 && s.run != nil {
		b.Usual = s.run.watch.Elapsed() // jobs take as long at least
	}
	if workers, _, _ := r.Fleet.Taking(s.lease.Queue().Name()); workers > 0 {
		b.Slots *= workers
	}
	if r.Stores.Jobs != nil {
		b.Queues = len(r.Stores.Jobs.All())
	}
	ctx = outage.Optional(ctx)
	var known bool
	if b.Messages, known = r.counts.count(ctx, s.lease.Queue()); !known || !b.IsLong() || !s.putOn(ctx, r.Stores.First, &r.firstRest) {
		return false
	}
	s.log.InfoContext(ctx, "job put before the backlog", "queue", r.Stores.First.Name(), "messages", b.Messages, "usual_job", b.Usual)
	return true
}

// usesFirst reports whether jobs may be put on the queue First.
func (r *Runner) usesFirst() bool { return r.Stores.First != nil && r.firstRest.mayTry(time.Now()) }

// KeepFromFirst puts no job on the queue First until some time.
func (r *Runner) KeepFromFirst(until time.Time) { r.firstRest.pause(until) }

// CountQueues counts the messages on the queues of the active jobs at the begin of a drain, so that
// the releases need not wait for that.
func (r *Runner) CountQueues(ctx context.Context) {
	if !r.usesFirst() {
		return
	}
	var queues sync.WaitGroup
	for _, q := range r.active.Queues() {
		if q != r.Stores.First && q != r.Stores.OnDemand {
			queues.Go(func() { r.counts.count(outage.Optional(ctx), q) })
		}
	}
	queues.Wait()
}

// counts are the last counts of the messages on queues.
type counts struct {
	mu   sync.Mutex
	last map[*queue.Queue]*count
}

// count is one count.
type count struct {
	asked    time.Time
	done     chan struct{} // closed when the fields below are set
	messages int
	known    bool
}

// count returns about how many messages a queue has, as of countKnownFor ago or later, if the
// service answers within moveTimeout. Callers at the same time share one call.
func (c *counts) count(ctx context.Context, q *queue.Queue) (messages int, known bool) {
	now, asks := c.current(q)
	if asks {
		ctx, cancel := context.WithTimeout(ctx, moveTimeout)
		defer cancel()
		n, err := q.Depth(ctx)
		now.messages, now.known = n, err == nil
		close(now.done)
	}
	select {
	case <-now.done:
		return now.messages, now.known
	case <-ctx.Done():
		return 0, false
	}
}

// current returns the count of a queue, and whether the caller must make the call.
func (c *counts) current(q *queue.Queue) (now *count, asks bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now = c.last[q]; now != nil && time.Since(now.asked) < countKnownFor {
		return now, false
	}
	if c.last == nil {
		c.last = map[*queue.Queue]*count{}
	}
	now = &count{asked: time.Now(), done: make(chan struct{})}
	c.last[q] = now
	return now, true
}
