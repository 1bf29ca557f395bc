package delivery

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/presence"
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

// Fleet samples the heartbeats of all workers, and keeps the last sample of the heartbeats of all workers.
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
	if last := f.last(); !last.at.IsZero() && (asked.Sub(last.at) < maxAge || last.at.After(asked)) {
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

// whoHas returns whether a worker that takes from the queue has a handler for the
// kind, by the best answer of all, and how many of those workers lack it. A worker that stopped, or was silent for [hasKindFor], has nothing; one
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

// Bounds of how long a message is hidden whose kind this worker lacks.
const (
	// minDefer is the delay while another worker has the kind: short beside the
	// pause between two claims of this one, so that the other mostly comes first.
	minDefer = time.Second

	// deferEvery is the time between two such messages that become visible, over all
	// workers that lack the kind: 20 a second, however many wait.
	deferEvery = 50 * time.Millisecond

	// maxDefer bounds the delay where thousands of them are spaced out.
	maxDefer = 5 * time.Minute

	// minPutBack and mostPutBack bound the wait where no worker is known to have
	// the kind, give or take a quarter.
	minPutBack = 30 * time.Second
	maxPutBack = time.Minute
)

// spacing spaces out messages whose kind this worker lacks: each becomes visible
// after minDefer, and not before those that were deferred earlier.
type spacing struct {
	mu   sync.Mutex
	free time.Time // the next time that is not taken
}

// next returns how long to hide a message, given how many workers lack its kind and
// space out their share.
func (s *spacing) next(now time.Time, workers int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := min(max(s.free.Sub(now), minDefer), maxDefer)
	s.free = now.Add(wait + deferEvery*time.Duration(max(workers, 1)))
	return wait
}

// findHandler returns the handler of the job's kind. Workers may differ in kinds: a
// job whose kind this one lacks is left to those that have it.
func (d *Delivery) findHandler(ctx context.Context) (job.Handler, outcome, bool) {
	if handler := d.runner.kinds[d.envelope.Kind]; handler != nil {
		return handler, outcome{}, true
	}
	kind := d.envelope.Kind
	seen, err := d.runner.fleet.Sample(ctx, sampleEvery)
	if err != nil {
		d.log.WarnContext(ctx, "heartbeats not listed; another worker may have the kind", "error", err)
		return nil, d.deferKind(presence.MayHave), false
	}
	if has, _ := seen.whoHas(kind, d.lease.Queue().Name(), time.Now()); has != presence.HasNot {
		return nil, d.deferKind(has), false
	}
	reason := fmt.Sprintf("no worker has a handler for kind %q", kind)
	if !unknownForLong(d.envelope.PutBackSince, d.lease.ClaimedAt) {
		return nil, outcome{action: putBack, reason: reason, delay: d.runner.jitter.Vary(putBackDelay(d.envelope.PutBackSince, d.lease.ClaimedAt))}, false
	}
	return nil, d.poisonKind(ctx, reason), false
}

// deferKind leaves a message to a worker that has, or may have, its kind. The hour
// after which an unknown kind is dead-lettered begins when no worker has it.
func (d *Delivery) deferKind(has presence.Has) outcome {
	delay, reason := cmp.Or(d.deferFor, d.runner.jitter.Vary(minDefer)), "another worker has a handler for kind %q"
	if has == presence.MayHave {
		delay, reason = max(delay, d.runner.jitter.Vary(minPutBack)), "another worker may have a handler for kind %q"
	}
	d.envelope = d.lease.ClearPutBack(d.envelope)
	return outcome{action: requeue, reason: fmt.Sprintf(reason, d.envelope.Kind), delay: delay}
}

// poisonKind dead-letters a job whose kind no worker has had for an hour, if this
// delivery may acquire its record and no worker has made progress with it. A job in
// progress waits for a worker that has its kind, however long that takes.
func (d *Delivery) poisonKind(ctx context.Context, reason string) outcome {
	record, ruling, err := d.readRecord(ctx)
	if err != nil {
		return stopped(ctx, err)
	}
	if ruling == checkpoint.Acquire && record.InProgress() {
		d.log.WarnContext(ctx, "job in progress waits for a worker with its kind: start one, or purge the job's message", "fraction", record.Fraction)
		return outcome{action: putBack, reason: reason + "; the job is in progress", delay: d.runner.jitter.Vary(maxPutBack)}
	}
	if out, ok := d.applyRuling(ctx, record, ruling); !ok {
		return out
	}
	return outcome{action: poison, reason: reason + ", for " + unknownKindFor.String()}
}

// unknownForLong reports whether a message has been put back for unknownKindFor
// because no worker has its kind. Both times are the service's.
func unknownForLong(since, now time.Time) bool {
	return !since.IsZero() && now.Sub(since) >= unknownKindFor
}

// putBackDelay returns how long to hide a message whose kind no worker has.
func putBackDelay(since, now time.Time) time.Duration {
	if since.IsZero() {
		since = now
	}
	return min(max(now.Sub(since)/4, minPutBack), maxPutBack)
}
