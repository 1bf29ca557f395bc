package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/presence"
)

const (
	// sampleEvery is how old a sample of the heartbeats may be that says which
	// workers have a kind. A worker lists at most that often for such questions,
	// and not at all while it meets no kind that it lacks.
	sampleEvery = 30 * time.Second

	// hasKindFor is how old a heartbeat may be that says that its worker has a
	// kind: eight heartbeats that did not come.
	hasKindFor = deadAfter
)

// fleet is the last sample of the heartbeats of all workers.
type fleet struct {
	store *presence.Store
	turn  chan struct{} // holds one: the caller that lists

	mu   sync.Mutex
	at   time.Time // when the last listing was asked for; zero before the first
	seen []presence.Listed
	err  error // of the last listing
}

func newFleet(store *presence.Store) *fleet {
	return &fleet{store: store, turn: make(chan struct{}, 1)}
}

// sample returns the heartbeats as of at most maxAge ago, with the ages that they
// have by now. Where that needs a listing, callers at the same time share one. A
// listing that failed is repeated after maxAge too.
func (f *fleet) sample(ctx context.Context, maxAge time.Duration) ([]presence.Listed, error) {
	asked := time.Now()
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if at, seen, err := f.last(); !at.IsZero() && (asked.Sub(at) < maxAge || at.After(asked)) {
		return aged(seen, time.Since(at)), err
	}
	at := time.Now()
	seen, err := f.store.List(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, err // the caller was stopped: that says nothing about the next one
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.seen, f.err = at, seen, err
	return aged(seen, time.Since(at)), err
}

func (f *fleet) last() (time.Time, []presence.Listed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at, f.seen, f.err
}

// aged returns the heartbeats as they are after some more time without news.
func aged(seen []presence.Listed, by time.Duration) []presence.Listed {
	seen = slices.Clone(seen)
	for i := range seen {
		seen[i].Age += by
	}
	return seen
}

// whoHas returns what the heartbeats say about a kind of job on a queue: the best
// answer of all workers that are alive and take from there, and how many of those
// lack it. A worker that stopped, or was silent for [hasKindFor], has nothing.
func whoHas(seen []presence.Listed, kind, queue string) (best presence.Has, lacking int) {
	for _, p := range seen {
		if p.Age > hasKindFor || p.State == lifecycle.Stopped.String() || !p.Takes(queue) {
			continue
		}
		has := p.HasKind(kind)
		best = max(best, has)
		if has == presence.HasNot {
			lacking++
		}
	}
	return best, lacking
}

// Bounds of the wait of a message whose kind this worker lacks.
const (
	// leastDefer is the wait while another worker has the kind: short beside the
	// pause between two claims of this one, so that the other mostly comes first.
	leastDefer = time.Second

	// deferEvery is how often one such message becomes visible again, over all
	// workers that lack its kind: 20 a second, however many wait.
	deferEvery = 50 * time.Millisecond

	// mostDefer bounds the wait where thousands of them are spaced out.
	mostDefer = 5 * time.Minute

	// leastPutBack and mostPutBack bound the wait where no worker is known to have
	// the kind, give or take a quarter.
	leastPutBack = 30 * time.Second
	mostPutBack  = time.Minute
)

// spacing says when messages whose kind this worker lacks become visible again:
// leastDefer from now, and not before those that it deferred earlier.
type spacing struct {
	mu   sync.Mutex
	free time.Time // the next time that is not given away
}

// next returns how long to hide a message, if as many workers lack its kind and
// space out their share.
func (s *spacing) next(now time.Time, workers int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := min(max(s.free.Sub(now), leastDefer), mostDefer)
	s.free = now.Add(wait + deferEvery*time.Duration(max(workers, 1)))
	return jittered(wait)
}
