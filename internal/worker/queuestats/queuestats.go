// Package queuestats reads how long the queues are, for metrics and for the log: a few workers
// of a fleet do, whom chance chooses, so that calls and lines do not grow with the fleet.
package queuestats

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/outage"
)

// How often a fleet reads.
const (
	// Every is how often a fleet's queues are read for metrics, give or take a
	// quarter, and Readers by how many workers each time, on average. So the
	// calls do not grow with the fleet, and the chance that none reads is 5 %.
	Every   = 30 * time.Second
	Readers = 3

	// LogEvery is how often a fleet logs readings, and Loggers by how many workers each
	// time: twice as many, since alerts conclude from 15 minutes without a line that no
	// worker takes messages.
	LogEvery = 5 * time.Minute
	Loggers  = 2 * Readers

	// deniedPause is how long a queue is left alone that this worker may not read.
	deniedPause = time.Hour
)

// Survey reads how long the queues are and how old the message at the front of each is:
// two calls for a queue that is not empty.
type Survey struct {
	// Queues returns the queues to read.
	Queues func() []*queue.Queue

	// Working returns how many workers the fleet has, as far as heartbeats show it; 0
	// before the first listing, before which none reads, so that a fleet that starts
	// does not read all at once.
	Working func() int

	// MayRead reports whether the worker has time for metrics.
	MayRead func() bool

	// Logs reports whether the worker logs readings: if it takes messages. So a log
	// without readings means that no worker takes any.
	Logs func() bool

	// Report takes a reading. It may be called from several goroutines.
	Report func(queue string, messages int, oldest time.Duration)

	// Publish publishes a reading for the autoscale of the worker's scale set, and Publishing
	// returns how many workers do that for the same set, [Readers] of them each time. Both are nil
	// where no autoscale follows the workers. Autoscale follows the queue Jobs, with which the
	// messages of First are counted.
	Publish     func(queue string, messages int, oldest time.Duration)
	Publishing  func(context.Context) int
	Jobs, First string

	Jitter retry.Jitter
	Log    *slog.Logger
}

// Run reads the queues from time to time until ctx ends.
func (s Survey) Run(ctx context.Context) {
	after := map[*queue.Queue]time.Time{} // not to be read before
	var logged time.Time                  // when it was last decided whether to log
	var seen trends
	for retry.Sleep(ctx, s.Jitter.Vary(Every)) == nil {
		workers := s.Working()
		if workers == 0 || !s.MayRead() {
			continue
		}
		now, log := time.Now(), false
		if now.Sub(logged) >= LogEvery && s.Logs() {
			logged, log = now, IsChosen(s.Jitter, Loggers, workers)
		}
		publish := s.Publish != nil && IsChosen(s.Jitter, Readers, s.Publishing(ctx))
		if !log && !publish && !IsChosen(s.Jitter, Readers, workers) {
			continue
		}
		var notes *trends
		if log {
			notes = &seen
		}
		var mu sync.Mutex // guards read
		var read []reading
		keep := func(queue string, messages int, oldest time.Duration) {
			s.Report(queue, messages, oldest)
			mu.Lock()
			defer mu.Unlock()
			read = append(read, reading{queue, messages, oldest})
		}
		for _, q := range s.readAll(ctx, notes, keep, func(q *queue.Queue) bool { return !now.Before(after[q]) }) {
			after[q] = now.Add(deniedPause)
		}
		if publish {
			s.publish(read)
		}
	}
}

// reading is a reading of a queue.
type reading struct {
	queue    string
	messages int
	oldest   time.Duration
}

// publish publishes the readings of one time.
func (s Survey) publish(all []reading) {
	first := 0
	for _, r := range all {
		if r.queue == s.First {
			first = r.messages
		}
	}
	for _, r := range all {
		if r.queue == s.Jobs {
			r.messages += first
		}
		s.Publish(r.queue, r.messages, r.oldest)
	}
}

// atOnce is how many queues are read at once.
const atOnce = 4

// report takes a reading of a queue.
type report func(queue string, messages int, oldest time.Duration)

// readAll reads the queues that are due, and returns the queues that this worker may not
// read.
func (s Survey) readAll(ctx context.Context, seen *trends, to report, isDue func(*queue.Queue) bool) (denied []*queue.Queue) {
	var mu sync.Mutex // guards denied
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, q := range s.Queues() {
		if !isDue(q) {
			continue
		}
		group.Go(func() error {
			if !s.read(ctx, q, seen, to) {
				mu.Lock()
				defer mu.Unlock()
				denied = append(denied, q)
			}
			return nil
		})
	}
	_ = group.Wait() // its functions return no error
	return denied
}

// IsChosen reports whether this worker, one of so many, is among the workers chosen at random.
func IsChosen(jitter retry.Jitter, choose, workers int) bool {
	return jitter.Spread(time.Duration(workers)*time.Second) < time.Duration(choose)*time.Second
}

// read reads a queue, and logs the reading unless seen is nil. It returns false if this worker
// may not.
func (s Survey) read(ctx context.Context, q *queue.Queue, seen *trends, to report) bool {
	ctx = outage.Optional(ctx) // many workers have no role to read some queues
	messages, err := q.Depth(ctx)
	var waited time.Duration
	if err == nil && messages > 0 {
		waited, err = q.FrontWaited(ctx)
	}
	switch {
	case err == nil:
		to(q.Name(), messages, waited)
		if seen != nil {
			s.log(ctx, q.Name(), messages, waited, seen.grows(q, messages))
		}
	case queue.Denied(err):
		s.Log.InfoContext(ctx, "queue not read for metrics: the role Storage Queue Data Reader on it is missing", "queue", q.Name(), "retry_in",
			deniedPause)
		return false
	default:
		s.Log.DebugContext(ctx, "queue not read for metrics", "queue", q.Name(), "error", err)
	}
	return true
}

// log logs a reading. The alert over the log goes by these lines: an empty queue is logged too,
// or the last line before it was empty would hold.
func (s Survey) log(ctx context.Context, name string, messages int, waited time.Duration, grows bool) {
	attributes := []any{"queue", name, "messages", messages}
	if waited > 0 {
		attributes = append(attributes, "since", time.Now().Add(-waited).UTC().Truncate(time.Second))
	}
	s.Log.InfoContext(ctx, "queue read", attributes...)
	if grows {
		s.Log.WarnContext(ctx, "queue grows", attributes...)
	}
}
