package delivery

import (
	"context"
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
	hasKindFor = 8 * presence.Every

	// lacksKindFor is how old a heartbeat may be that says that its worker lacks a
	// kind. It is one heartbeat and the way of it: workers that were evicted since
	// put no message off any more.
	lacksKindFor = presence.Every + 5*time.Second
)

// fleet keeps the last sample of the heartbeats of all workers.
type Fleet struct {
	store *presence.Store
	turn  chan struct{} // holds one: the caller that lists

	mu      sync.Mutex
	sampled Sample
}

// sample is what a listing of heartbeats said. The zero value is that of no listing.
type Sample struct {
	at      time.Time // when it was asked for
	Workers []presence.Listed
	err     error // why there are none
}

func NewFleet(store *presence.Store) *Fleet {
	return &Fleet{store: store, turn: make(chan struct{}, 1)}
}

// sample returns one that was asked for at most maxAge ago. Where that needs a
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
	if last := f.last(); !last.at.IsZero() && (asked.Sub(last.at) < maxAge || last.at.After(asked)) {
		return last, last.err
	}
	now := Sample{at: time.Now()}
	now.Workers, now.err = f.store.List(ctx)
	if now.err != nil && ctx.Err() != nil {
		return Sample{}, now.err // the caller was stopped: that says nothing about the next one
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

// whoHas returns what the heartbeats say about a kind of job on a queue: the best
// answer of all workers that are alive and take from there, and how many of those
// lack it. A worker that stopped, or was silent for [hasKindFor], has nothing; one
// that leaves its VM, or was silent for [lacksKindFor], is not counted as lacking it.
func (s Sample) whoHas(kind, queue string, now time.Time) (best presence.Has, lacking int) {
	for _, p := range s.Workers {
		age := p.Age + now.Sub(s.at)
		if age > hasKindFor || p.State == lifecycle.Stopped.String() || !p.Takes(queue) {
			continue
		}
		has := p.HasKind(kind)
		best = max(best, has)
		if has == presence.HasNot && p.Age <= lacksKindFor && p.State != lifecycle.Shutdown.String() {
			lacking++
		}
	}
	return best, lacking
}

// Bounds of the wait of a message whose kind this worker lacks.
const (
	// minDefer is the wait while another worker has the kind: short beside the
	// pause between two claims of this one, so that the other mostly comes first.
	minDefer = time.Second

	// deferEvery is how often one such message becomes visible again, over all
	// workers that lack its kind: 20 a second, however many wait.
	deferEvery = 50 * time.Millisecond

	// maxDefer bounds the wait where thousands of them are spaced out.
	maxDefer = 5 * time.Minute

	// minPutBack and mostPutBack bound the wait where no worker is known to have
	// the kind, give or take a quarter.
	minPutBack = 30 * time.Second
	maxPutBack = time.Minute
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
	wait := min(max(s.free.Sub(now), minDefer), maxDefer)
	s.free = now.Add(wait + deferEvery*time.Duration(max(workers, 1)))
	return wait
}
