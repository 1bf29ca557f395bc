package worker

import (
	"context"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
)

const (
	// queuesEvery is how often a fleet's queues are read for metrics, give or take a
	// quarter, and queueReaders by how many workers each time, on average. So the
	// calls do not grow with the fleet, and the chance that none reads is 5 %.
	queuesEvery  = 30 * time.Second
	queueReaders = 3

	// deniedPause is how long a queue is left alone that this worker may not read.
	deniedPause = time.Hour
)

// queueSurvey reads how long the queues are and how old the message at the front of
// each is, for metrics: two calls for a queue that is not empty. It belongs to one goroutine.
type queueSurvey struct {
	worker *Worker
	after  map[*queue.Queue]time.Time // not to be read before
}

// run reads the queues from time to time until ctx ends. Which workers read is left to
// chance, by the size of the fleet as its heartbeats show it; none reads before the
// first listing, so that a fleet that starts does not read all at once.
func (s *queueSurvey) run(ctx context.Context) {
	w := s.worker
	for retry.Sleep(ctx, w.Jitter.Vary(queuesEvery)) == nil {
		workers := w.fleet.Working()
		if workers == 0 || !s.mayRead() || !isChosen(w.Jitter, workers) {
			continue
		}
		for _, q := range s.queues() {
			s.read(ctx, q)
		}
	}
}

// isChosen reports whether this worker, one of so many, is among the readers.
func isChosen(jitter retry.Jitter, workers int) bool {
	return jitter.Spread(time.Duration(workers)*time.Second) < queueReaders*time.Second
}

// mayRead reports whether the worker has time for metrics: not in a drain, nor while it
// starts. One that operators keep from work reads.
func (s *queueSurvey) mayRead() bool {
	state := s.worker.machine.State()
	followed := s.worker.steering.followed.Load()
	return state == lifecycle.Process || state == lifecycle.Shutdown && followed != nil && followed.asked != ""
}

// queues are those that the worker takes from or moves to, and the poison queue.
func (s *queueSurvey) queues() []*queue.Queue {
	return append(slices.Clip(s.worker.queues()), s.worker.Poison)
}

func (s *queueSurvey) read(ctx context.Context, q *queue.Queue) {
	if time.Now().Before(s.after[q]) {
		return
	}
	messages, err := q.Depth(ctx)
	var waited time.Duration
	if err == nil && messages > 0 {
		waited, err = q.FrontWaited(ctx)
	}
	switch {
	case err == nil:
		s.worker.Observer.QueueRead(q.Name(), messages, waited)
	case queue.Denied(err):
		s.after[q] = time.Now().Add(deniedPause)
		s.worker.Log.InfoContext(ctx, "queue not read for metrics: the role Storage Queue Data Reader on it is missing", "queue", q.Name(), "again_in", deniedPause)
	default:
		s.worker.Log.DebugContext(ctx, "queue not read for metrics", "queue", q.Name(), "error", err)
	}
}
