package worker

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

// sources are the queues that a worker takes jobs from: those of [Config.TakeFrom], and
// with the first queue of jobs all of its shards, whose number may change. It implements
// [queue.Jobs] for the jobs that handlers put.
type sources struct {
	takeFrom []*queue.Queue
	main     *queue.Queue
	shards   *queue.Shards // nil where there is one queue of jobs
	jitter   retry.Jitter
	log      *slog.Logger

	taken atomic.Pointer[[]*queue.Queue]
}

func newSources(c Config) *sources {
	s := &sources{takeFrom: c.TakeFrom, main: c.Queue, shards: c.Shards, jitter: c.Jitter, log: c.Log}
	s.taken.Store(&s.takeFrom)
	return s
}

// all returns the queues that jobs are taken from. The slice is another one after each
// change.
func (s *sources) all() []*queue.Queue { return *s.taken.Load() }

// All returns the queues of jobs.
func (s *sources) All() []*queue.Queue {
	if s.shards == nil {
		return s.main.All()
	}
	return s.shards.All()
}

// For returns the queue for new messages of a job.
func (s *sources) For(id string) *queue.Queue {
	if s.shards == nil {
		return s.main
	}
	return s.shards.For(id)
}

// isSharded reports whether q stands for several queues of which the number is known
// from q alone.
func (s *sources) isSharded(q *queue.Queue) bool { return s.shards != nil && q == s.main }

// check makes one call to a queue of [Config.TakeFrom], or one that jobs are moved to.
// Of shards the first has to answer, which has their number; others that do not are
// logged, and do not keep the worker from the rest.
func (s *sources) check(ctx context.Context, q *queue.Queue) error {
	if !s.isSharded(q) {
		_, err := q.Depth(ctx)
		return err
	}
	return s.read(ctx)
}

// follow reads the number of queues from time to time until ctx ends.
func (s *sources) follow(ctx context.Context) {
	if !slices.ContainsFunc(s.takeFrom, s.isSharded) {
		return
	}
	for retry.Sleep(ctx, s.jitter.Vary(shardsEvery)) == nil {
		if err := s.read(ctx); err != nil && ctx.Err() == nil {
			s.log.Log(ctx, outage.Level(err, slog.LevelWarn), "number of queues not read; jobs are taken from those known", "error", err, "take_from", names(s.all()))
		}
	}
}

// read reads the number of queues, and takes jobs from so many.
func (s *sources) read(ctx context.Context) error {
	if _, err := s.shards.Read(ctx); err != nil {
		return err
	}
	var next []*queue.Queue
	for _, q := range s.takeFrom {
		if s.isSharded(q) {
			next = append(next, s.shards.All()...)
		} else {
			next = append(next, q)
		}
	}
	before := s.all()
	if slices.Equal(before, next) {
		return nil
	}
	s.taken.Store(&next)
	s.log.InfoContext(ctx, "jobs are taken from another number of queues", "take_from", names(next))
	for _, q := range next {
		if slices.Contains(before, q) {
			continue
		}
		if _, err := q.Depth(ctx); err != nil && ctx.Err() == nil {
			s.log.Log(ctx, outage.Level(err, slog.LevelError), "queue cannot be read; its jobs wait, and those of the other queues do not", "queue", q.Name(), "error", err)
		}
	}
	return nil
}
