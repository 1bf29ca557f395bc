// Package sources knows the queues that a worker takes jobs from. The jobs of a
// deployment may be spread over several, whose number it reads from time to time.
package sources

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/outage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
)

// shardsEvery is how often a worker reads how many queues of jobs there are, give or
// take a quarter: one call.
const shardsEvery = time.Minute

// Sources are the queues that a worker takes jobs from: with the first queue of jobs all
// of its shards, whose number may change. It implements [queue.Jobs] for the jobs that
// handlers put.
type Sources struct {
	Config
	taken atomic.Pointer[[]*queue.Queue]
}

// Config is what [Sources] are made of.
type Config struct {
	// TakeFrom are the queues that jobs are taken from. Where Main, the first queue of
	// jobs, is among them, jobs are taken from all Shards of it; nil if there is one queue.
	TakeFrom []*queue.Queue
	Main     *queue.Queue
	Shards   *queue.Shards

	Jitter retry.Jitter
	Log    *slog.Logger
}

// New returns sources before anything was read.
func New(c Config) *Sources {
	s := &Sources{Config: c}
	s.taken.Store(&s.TakeFrom)
	return s
}

// Taken returns the queues that jobs are taken from. The slice is another one after each
// change.
func (s *Sources) Taken() []*queue.Queue { return *s.taken.Load() }

// All returns the queues of jobs.
func (s *Sources) All() []*queue.Queue {
	if s.Shards == nil {
		return s.Main.All()
	}
	return s.Shards.All()
}

// For returns the queue for new messages of a job.
func (s *Sources) For(id string) *queue.Queue {
	if s.Shards == nil {
		return s.Main
	}
	return s.Shards.For(id)
}

// isSharded reports whether q stands for several queues of which the number is known
// from q alone.
func (s *Sources) isSharded(q *queue.Queue) bool { return s.Shards != nil && q == s.Main }

// Check makes one call to a queue that jobs are taken from, or moved to.
// Of shards the first has to answer, which has their number; others that do not are
// logged, and do not keep the worker from the rest.
func (s *Sources) Check(ctx context.Context, q *queue.Queue) error {
	if !s.isSharded(q) {
		_, err := q.Depth(ctx)
		return err
	}
	return s.read(ctx)
}

// Follow reads the number of queues from time to time until ctx ends.
func (s *Sources) Follow(ctx context.Context) {
	if !slices.ContainsFunc(s.TakeFrom, s.isSharded) {
		return
	}
	for retry.Sleep(ctx, s.Jitter.Vary(shardsEvery)) == nil {
		if err := s.read(ctx); err != nil && ctx.Err() == nil {
			s.Log.Log(ctx, outage.Level(err, slog.LevelWarn), "number of queues not read; jobs are taken from those known", "error", err, "take_from", queue.Names(s.Taken()))
		}
	}
}

// read reads the number of queues, and takes jobs from so many.
func (s *Sources) read(ctx context.Context) error {
	if _, err := s.Shards.Read(ctx); err != nil {
		return err
	}
	var next []*queue.Queue
	for _, q := range s.TakeFrom {
		if s.isSharded(q) {
			next = append(next, s.Shards.All()...)
		} else {
			next = append(next, q)
		}
	}
	before := s.Taken()
	if slices.Equal(before, next) {
		return nil
	}
	s.taken.Store(&next)
	s.Log.InfoContext(ctx, "jobs are taken from another number of queues", "take_from", queue.Names(next))
	for _, q := range next {
		if slices.Contains(before, q) {
			continue
		}
		if _, err := q.Depth(ctx); err != nil && ctx.Err() == nil {
			s.Log.Log(ctx, outage.Level(err, slog.LevelError), "queue cannot be read; its jobs wait, and those of the other queues do not", "queue", q.Name(), "error", err)
		}
	}
	return nil
}
