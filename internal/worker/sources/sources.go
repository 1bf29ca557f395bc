// Package sources knows the queues that a worker takes jobs from. The jobs of a deployment
// may be spread over several queues, whose number it reads from time to time.
package sources

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/outage"
)

// shardsEvery is how often a worker reads how many queues of jobs there are, give or take a
// quarter: one call.
const shardsEvery = time.Minute

// Sources are the queues that a worker takes jobs from: with the first queue of jobs all
// of its shards, whose number may change. Its methods may be called from several goroutines.
type Sources struct {
	*delivery.Settings
	takeFrom []Choice
	check    func(context.Context) error
	taken    atomic.Pointer[[]*queue.Queue]
	ready    atomic.Bool // a check has succeeded
	mu       sync.Mutex  // guards changes of taken
}

// Choice is a queue that jobs may be taken from.
type Choice string

// The choices.
const (
	Spot     Choice = "spot"      // the queue of jobs, with its shards, and the queue First
	OnDemand Choice = "on-demand" // the queue of jobs for VMs of regular priority
)

// Chosen returns the queues by choices, without the further shards and without the queue First,
// which a worker can do without. A queue that the deployment does not have is nil.
func Chosen(s *deployment.Stores, choices []Choice) []*queue.Queue {
	queues := make([]*queue.Queue, len(choices))
	for i, choice := range choices {
		switch choice {
		case Spot:
			queues[i] = s.Queue
		case OnDemand:
			queues[i] = s.OnDemand
		}
	}
	return queues
}

// New returns sources before anything was read. For [Spot] jobs are taken from all shards of the
// queue of jobs, if it has any. check makes one call to everything that jobs need except the queues
// in takeFrom.
func New(settings *delivery.Settings, takeFrom []Choice, check func(context.Context) error) *Sources {
	s := &Sources{Settings: settings, takeFrom: takeFrom, check: check}
	s.taken.Store(new(s.known()))
	return s
}

// Taken returns the queues that jobs are taken from. The slice is another one after each
// change.
func (s *Sources) Taken() []*queue.Queue { return *s.taken.Load() }

// Place returns the queue for new messages of a job.
func (s *Sources) Place(id string) *queue.Queue {
	if s.Stores.Jobs == nil {
		return s.Stores.Queue
	}
	return s.Stores.Jobs.For(id)
}

// readsShards reports whether jobs are taken from all shards of the queue of jobs, so that
// their number must be read.
func (s *Sources) readsShards() bool {
	return s.Stores.Jobs != nil && slices.Contains(s.takeFrom, Spot)
}

// Check makes one call to everything that jobs need. It returns the first error in the order
// of the calls, so that an operator who fixes one thing after the other sees the same error
// until it is fixed.
func (s *Sources) Check(ctx context.Context) error {
	var checks []func(context.Context) error
	for _, q := range Chosen(s.Stores, s.takeFrom) {
		checks = append(checks, func(ctx context.Context) error {
			if q == s.Stores.Queue && s.Stores.Jobs != nil {
				_, err := s.Stores.Jobs.Read(ctx)
				return err
			}
			_, err := q.Depth(ctx)
			return err
		})
	}
	if err := All(ctx, append(checks, s.check)); err != nil {
		return err
	}
	s.ready.Store(true)
	s.update(ctx)
	return nil
}

// All runs checks at once, and returns the first error in their order.
func All(ctx context.Context, checks []func(context.Context) error) error {
	errs := make([]error, len(checks))
	var group sync.WaitGroup
	for i, check := range checks {
		group.Go(func() { errs[i] = check(ctx) })
	}
	group.Wait()
	return cmp.Or(errs...)
}

// Follow reads the number of queues from time to time until ctx ends, from the first check that
// succeeds on.
func (s *Sources) Follow(ctx context.Context) {
	if !s.readsShards() {
		return
	}
	for retry.Sleep(ctx, s.Jitter.Vary(shardsEvery)) == nil {
		if !s.ready.Load() {
			continue
		}
		if _, err := s.Stores.Jobs.Read(ctx); err != nil && ctx.Err() == nil {
			s.Log.Log(ctx, outage.Level(err, slog.LevelWarn), "number of queues not read; jobs are taken from those known", "error", err,
				"take_from", queue.Names(s.Taken()))
		}
		s.update(ctx)
	}
}

// update takes jobs from the queues that are known now, and makes a call to each new one, all
// at once.
func (s *Sources) update(ctx context.Context) {
	var group sync.WaitGroup
	for _, q := range s.take(ctx) {
		group.Go(func() {
			if _, err := q.Depth(ctx); err != nil && ctx.Err() == nil {
				s.Log.Log(ctx, outage.Level(err, slog.LevelError), "queue cannot be read; its jobs wait, and those of the other queues do not", "queue",
					q.Name(), "error", err)
			}
		})
	}
	group.Wait()
}

// take takes jobs from the queues that are known now, and returns the new queues.
func (s *Sources) take(ctx context.Context) (added []*queue.Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, next := s.Taken(), s.known()
	if slices.Equal(before, next) {
		return nil
	}
	s.taken.Store(&next)
	s.Log.InfoContext(ctx, "jobs are taken from another number of queues", "take_from", queue.Names(next))
	return slices.DeleteFunc(slices.Clone(next), func(q *queue.Queue) bool { return slices.Contains(before, q) })
}

// known returns the queues that jobs are taken from, as far as their number is known.
func (s *Sources) known() (all []*queue.Queue) {
	for _, q := range Chosen(s.Stores, s.takeFrom) {
		if q == s.Stores.Queue && s.Stores.Jobs != nil {
			all = append(all, s.Stores.Jobs.All()...)
		} else {
			all = append(all, q)
		}
	}
	if s.Stores.First != nil && slices.Contains(s.takeFrom, Spot) {
		all = append(all, s.Stores.First)
	}
	return all
}
