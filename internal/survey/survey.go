// Package survey reads for metrics how long the queues are: a few workers of a fleet do,
// whom chance chooses, so that the calls do not grow with the fleet.
package survey

import (
	"context"
	"log/slog"
	"time"

	"github.com/spotworker/spotworker/internal/outage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
)

// How often a fleet reads.
const (
	// Every is how often a fleet's queues are read for metrics, give or take a
	// quarter, and Readers by how many workers each time, on average. So the
	// calls do not grow with the fleet, and the chance that none reads is 5 %.
	Every   = 30 * time.Second
	Readers = 3

	// deniedPause is how long a queue is left alone that this worker may not read.
	deniedPause = time.Hour
)

// Survey reads how long the queues are and how old the message at the front of each is:
// two calls for a queue that is not empty.
type Survey struct {
	Queues []*queue.Queue

	// Working returns how many workers the fleet has, as far as heartbeats show it; 0
	// before the first listing, before which none reads, so that a fleet that starts
	// does not read all at once.
	Working func() int

	// MayRead reports whether the worker has time for metrics.
	MayRead func() bool

	// Report takes a reading.
	Report func(queue string, messages int, oldest time.Duration)

	Jitter retry.Jitter
	Log    *slog.Logger
}

// Run reads the queues from time to time until ctx ends.
func (s Survey) Run(ctx context.Context) {
	after := map[*queue.Queue]time.Time{} // not to be read before
	for retry.Sleep(ctx, s.Jitter.Vary(Every)) == nil {
		workers := s.Working()
		if workers == 0 || !s.MayRead() || !isChosen(s.Jitter, workers) {
			continue
		}
		for _, q := range s.Queues {
			if !time.Now().Before(after[q]) && !s.read(ctx, q) {
				after[q] = time.Now().Add(deniedPause)
			}
		}
	}
}

// isChosen reports whether this worker, one of so many, is among the readers.
func isChosen(jitter retry.Jitter, workers int) bool {
	return jitter.Spread(time.Duration(workers)*time.Second) < Readers*time.Second
}

// read reads a queue. It returns false if this worker may not.
func (s Survey) read(ctx context.Context, q *queue.Queue) bool {
	ctx = outage.Optional(ctx) // many workers have no role to read some queues
	messages, err := q.Depth(ctx)
	var waited time.Duration
	if err == nil && messages > 0 {
		waited, err = q.FrontWaited(ctx)
	}
	switch {
	case err == nil:
		s.Report(q.Name(), messages, waited)
	case queue.Denied(err):
		s.Log.InfoContext(ctx, "queue not read for metrics: the role Storage Queue Data Reader on it is missing", "queue", q.Name(), "retry_in", deniedPause)
		return false
	default:
		s.Log.DebugContext(ctx, "queue not read for metrics", "queue", q.Name(), "error", err)
	}
	return true
}
