package delivery

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/job"
)

const (
	// sampleEvery is how old a sample of the heartbeats may be to say which workers
	// have a kind. A worker lists them at most that often for this, and not at all
	// while it meets no kind that it lacks.
	sampleEvery = 30 * time.Second

	// hasKindFor is how old a heartbeat may be to show that its worker has a kind:
	// eight missed heartbeats.
	hasKindFor = 8 * presence.Every

	// lacksKindFor is how old a heartbeat may be to show that its worker lacks a
	// kind: one heartbeat and its latency. Workers that were evicted since do not
	// count.
	lacksKindFor = presence.Every + 5*time.Second
)

// Fleet samples the heartbeats of all workers, and keeps the last sample.
type Fleet struct {
	store *presence.Store
	turn  chan struct{} // holds one: the caller that lists

	mu      sync.Mutex
	sampled Sample
}

// Sample is one listing of the heartbeats. The zero value stands for none.
type Sample struct {
	at      time.Time // when it was asked for
	Workers []presence.Listed
	err     error // why there are none
}

// NewFleet returns a Fleet without a sample.
func NewFleet(store *presence.Store) *Fleet {
	return &Fleet{store: store, turn: make(chan struct{}, 1)}
}

// Sample returns a sample that was asked for at most maxAge ago. Where that needs a
// listing, callers at the same time share one. A listing that failed is repeated
// after maxAge too.
func (f *Fleet) Sample(ctx context.Context, maxAge time.Duration) (Sample, error) {
	asked := time.Now()
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return Sample{}, context.Cause(ctx)
	}
	if last := f.last(); asked.Sub(last.at) < maxAge { // the zero Sample is older than that
		return last, last.err
	}
	now := Sample{at: time.Now()}
	now.Workers, now.err = f.store.List(ctx)
	if now.err != nil && ctx.Err() != nil {
		return Sample{}, now.err // the caller was stopped: that is no result for the next one
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sampled = now
	return now, now.err
}

// last returns the last sample, however old.
func (f *Fleet) last() Sample {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sampled
}

// Taking returns how many workers take from the queue and how many of them have no job, by the
// last sample, and when that was taken. It is 0 where heartbeats could not be listed.
func (f *Fleet) Taking(queue string) (workers, idle int, at time.Time) {
	sample := f.last()
	for _, p := range sample.Workers {
		if !works(p) || !p.Takes(queue) {
			continue
		}
		workers++
		if p.Count == 0 {
			idle++
		}
	}
	return workers, idle, sample.at
}

// works reports whether a worker took jobs when the sample was taken.
func works(p presence.Listed) bool {
	return p.Age <= lacksKindFor && p.State == lifecycle.Process.String()
}

// Working returns how many workers take jobs, by the last sample; 0 where there is none.
func (f *Fleet) Working() (workers int) {
	for _, p := range f.last().Workers {
		if works(p) {
			workers++
		}
	}
	return workers
}

// publishersKnownFor is how old a listing may be that says how many workers publish: evictions
// soon leave few of many.
const publishersKnownFor = 5 * time.Minute

// Publishing returns how many workers take jobs and publish the depths of queues for a resource
// ([presence.Presence] has it as Depths); 0 where heartbeats cannot be listed.
func (f *Fleet) Publishing(ctx context.Context, resource string) (workers int) {
	sample, err := f.Sample(ctx, publishersKnownFor)
	if err != nil {
		return 0
	}
	for _, p := range sample.Workers {
		if works(p) && p.Depths == resource {
			workers++
		}
	}
	return workers
}

// Peers returns how many workers take jobs and, as this worker, do or do not take from a
// queue.
func (s Sample) Peers(queue string, takes bool) (workers int) {
	for _, p := range s.Workers {
		if works(p) && p.Takes(queue) == takes {
			workers++
		}
	}
	return workers
}

// takers returns the workers that may take jobs from the queue. A worker that stopped, or was
// silent for [hasKindFor], is none.
func (s Sample) takers(queue string, now time.Time) iter.Seq[presence.Listed] {
	return func(yield func(presence.Listed) bool) {
		for p := range s.seen(queue, now, hasKindFor) {
			if p.State != lifecycle.Stopped.String() && !yield(p) {
				return
			}
		}
	}
}

// seen returns the workers that took jobs from the queue and were alive within some time before
// now. They may have ended since.
func (s Sample) seen(queue string, now time.Time, within time.Duration) iter.Seq[presence.Listed] {
	return func(yield func(presence.Listed) bool) {
		for _, p := range s.Workers {
			if p.Age+now.Sub(s.at) <= within && p.Takes(queue) && !yield(p) {
				return
			}
		}
	}
}

// hasKind returns whether a worker that takes from the queue has a handler for the kind, and how
// many of those workers lack it. A worker that leaves its VM, or was silent for [lacksKindFor], is not
// counted: it does not find the message again.
func (s Sample) hasKind(kind, queue string, now time.Time) (best presence.Has, lacking int) {
	for p := range s.takers(queue, now) {
		has := p.HasKind(kind)
		best = max(best, has)
		if has == presence.HasNot && p.Age <= lacksKindFor && p.State != lifecycle.Shutdown.String() {
			lacking++
		}
	}
	return best, lacking
}

// slots returns how many workers that claim from the queue, without one worker, have the kind and fewer
// jobs than limit, and how many have the kind and more jobs.
func (s Sample) slots(limit int, kind, queue, without string) (free, full int) {
	for _, p := range s.Workers {
		switch {
		case !works(p) || p.Asked != "" || p.Worker == without || !p.Takes(queue) || p.HasKind(kind) != presence.HasIt:
		case p.Count < limit:
			free++
		default:
			full++
		}
	}
	return free, full
}

// hadKind reports whether a worker that takes from the queue may have had a handler for the kind
// within some time before now.
func (s Sample) hadKind(kind, queue string, now time.Time, within time.Duration) bool {
	return best(s.seen(queue, now, within), "", func(p presence.Listed) presence.Has { return p.HasKind(kind) }) != presence.HasNot
}

// meets returns whether a worker that takes from the queue, without one worker, meets the needs
// of a state of the kind.
func (s Sample) meets(kind, queue, needs, without string, now time.Time) presence.Has {
	return best(s.takers(queue, now), without, func(p presence.Listed) presence.Has { return p.Meets(kind, needs) })
}

// met reports whether a worker that takes from the queue, without one worker, met the needs of a
// state of the kind within some time before now.
func (s Sample) met(kind, queue, needs, without string, now time.Time, within time.Duration) bool {
	return best(s.seen(queue, now, within), without, func(p presence.Listed) presence.Has { return p.Meets(kind, needs) }) == presence.HasIt
}

// best returns the best answer of some workers, without one worker.
func best(workers iter.Seq[presence.Listed], without string, has func(presence.Listed) presence.Has) (best presence.Has) {
	for p := range workers {
		if without == "" || p.Worker != without {
			best = max(best, has(p))
		}
	}
	return best
}

// outlook returns whether a worker that takes from the queue can continue from a state of the kind,
// by the needs of the state: of the live workers, or if there is none, of the workers of the last
// day. ok is false if there was none either.
func (s Sample) outlook(kind, queue, needs string, now time.Time) (best presence.Has, ok bool) {
	for _, workers := range []iter.Seq[presence.Listed]{s.takers(queue, now), s.seen(queue, now, unmetFor)} {
		for p := range workers {
			best, ok = max(best, p.Meets(kind, needs)), true
		}
		if ok {
			break
		}
	}
	return best, ok
}

// kinds returns the kinds of the workers that may take jobs, by the sample, and own.
func (s Sample) kinds(own job.Kinds) []string {
	all := slices.Collect(maps.Keys(own))
	for _, p := range s.Workers {
		if p.Age <= hasKindFor && p.State != lifecycle.Stopped.String() {
			all = append(all, p.Kinds...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
