package delivery

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/text/spelling"
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
		if p.Age > lacksKindFor || p.State != lifecycle.Process.String() || !p.Takes(queue) {
			continue
		}
		workers++
		if p.Count == 0 {
			idle++
		}
	}
	return workers, idle, sample.at
}

// Working returns how many workers take jobs, by the last sample; 0 where there is none.
func (f *Fleet) Working() (workers int) {
	for _, p := range f.last().Workers {
		if p.Age <= lacksKindFor && p.State == lifecycle.Process.String() {
			workers++
		}
	}
	return workers
}

// Peers returns how many workers take jobs and, as this worker, do or do not take from a
// queue.
func (s Sample) Peers(queue string, takes bool) (workers int) {
	for _, p := range s.Workers {
		if p.Age <= lacksKindFor && p.State == lifecycle.Process.String() && p.Takes(queue) == takes {
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

// whoHas returns whether a worker that takes from the queue has a handler for the kind, and how
// many of those workers lack it.
func (s Sample) whoHas(kind, queue string, now time.Time) (best presence.Has, lacking int) {
	return s.ask(queue, "", now, func(p presence.Listed) presence.Has { return p.HasKind(kind) })
}

// whoMeets returns whether a worker that takes from the queue, without one worker, meets the needs
// of a state of the kind, and how many of those workers do not, the one worker among them.
func (s Sample) whoMeets(kind, queue, needs, without string, now time.Time) (best presence.Has, unlike int) {
	best, unlike = s.ask(queue, without, now, func(p presence.Listed) presence.Has { return p.Meets(kind, needs) })
	return best, unlike + 1
}

// metLately reports whether a worker that takes from the queue met the needs of a state of the kind
// within some time before now, without one worker.
func (s Sample) metLately(kind, queue, needs, without string, now time.Time, within time.Duration) bool {
	for p := range s.seen(queue, now, within) {
		if p.Worker != without && p.Meets(kind, needs) == presence.HasIt {
			return true
		}
	}
	return false
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

// ask returns the best answer of the workers that take from the queue, without one worker, and how
// many of them answer no. A worker that leaves its VM, or was silent for [lacksKindFor], is not
// counted: it does not find the message again.
func (s Sample) ask(queue, without string, now time.Time, has func(presence.Listed) presence.Has) (best presence.Has, no int) {
	for p := range s.takers(queue, now) {
		if without != "" && p.Worker == without {
			continue
		}
		answer := has(p)
		best = max(best, answer)
		if answer == presence.HasNot && p.Age <= lacksKindFor && p.State != lifecycle.Shutdown.String() {
			no++
		}
	}
	return best, no
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

const (
	// pausedHidden is how long the message of a paused kind is hidden each time that it
	// is claimed: a long backlog costs calls, and an end of the pause takes that long.
	pausedHidden = time.Minute

	// pausedLook is how long a worker waits that has only paused kinds.
	pausedLook = time.Second
)

// Bounds of how long a message is hidden if this worker lacks its kind.
const (
	// minDefer is the delay while another worker has the kind: short beside the
	// pause between two claims of this one, so that the other mostly comes first.
	minDefer = time.Second

	// deferEvery is the time between two such messages that become visible, over all
	// workers that lack the kind: 20 a second, however many wait.
	deferEvery = 50 * time.Millisecond

	// unlistedDelay is the delay while heartbeats cannot be listed, give or take a quarter:
	// a live worker may have the kind, and storage may answer its claim.
	unlistedDelay = 5 * time.Second

	// maxDefer bounds the delay where thousands of them are spaced out.
	maxDefer = 5 * time.Minute

	// minKindDelay and maxKindDelay bound the wait where no worker is known to have
	// the kind, give or take a quarter.
	minKindDelay = 30 * time.Second
	maxKindDelay = time.Minute
)

// spacing spaces out messages of kinds that this worker lacks: each becomes visible
// after minDefer, and not before the messages that were deferred earlier.
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

// checkKind returns the outcome of a job whose kind this worker does not run. Workers may differ
// in kinds: a job of a kind that this worker lacks is left to workers that have it. A job of a kind
// that an operator paused waits, also if this worker lacks the kind.
func (c *claimed) checkKind(ctx context.Context) *outcome {
	kind := c.envelope.Kind
	if c.env.isPaused(kind) {
		c.envelope = c.lease.ClearPutBack(c.envelope)
		return &outcome{action: skip, reason: fmt.Sprintf("kind %q is paused", kind), delay: c.env.Jitter.Vary(pausedHidden)}
	}
	if c.kind.handler != nil {
		return nil
	}
	seen, err := c.env.Fleet.Sample(ctx, sampleEvery)
	if err != nil {
		c.log.Log(ctx, outage.Level(err, slog.LevelWarn), "heartbeats not listed; another worker may run this kind of job", "error", err)
		wait := c.env.deferred.next(time.Now(), 1) // how many workers lack the kind is not known
		return c.hideKind("another worker may have a handler for kind %q", c.env.Jitter.Vary(max(wait, unlistedDelay)))
	}
	if has, _ := seen.whoHas(kind, c.lease.Queue().Name(), time.Now()); has != presence.HasNot {
		return c.deferKind(has)
	}
	reason := fmt.Sprintf("no worker has a handler for kind %q", kind)
	if meant := spelling.Nearest(kind, seen.kinds(c.env.Kinds)); meant != "" {
		reason += fmt.Sprintf(" (did you mean %q?)", meant)
	}
	if unknownForLong(c.envelope.PutBackSince, c.lease.ClaimedAt) {
		return c.poisonKind(ctx, reason)
	}
	return c.lackKind(reason, c.env.Jitter.Vary(putBackDelay(c.envelope.PutBackSince, c.lease.ClaimedAt)))
}

// lackKind puts a message back whose kind no worker has, and counts it for the heartbeat.
func (c *claimed) lackKind(reason string, delay time.Duration) *outcome {
	c.env.lacking.Hide(c.envelope.Kind, c.envelope.ID, time.Now(), delay)
	return &outcome{action: putBack, reason: reason, delay: delay}
}

// deferKind leaves a message to a worker that has, or may have, its kind. The hour
// after which an unknown kind is dead-lettered begins when no worker has it.
//
// Measured with 1,000 waiting messages: 39.7 calls a second, a claim and an update for
// each of at most 20 messages over all workers. With a worker of two that has the kind, a
// free slot had its next job at once (50 of 50 times); with a worker of nine after 2 s on
// average and 97 s at worst (300 times).
func (c *claimed) deferKind(has presence.Has) *outcome {
	delay, reason := cmp.Or(c.deferFor, c.env.Jitter.Vary(minDefer)), "another worker has a handler for kind %q"
	if has == presence.MayHave {
		delay, reason = max(delay, c.env.Jitter.Vary(minKindDelay)), "another worker may have a handler for kind %q"
	}
	return c.hideKind(reason, delay)
}

// hideKind makes the message visible again after delay; reason formats its kind.
func (c *claimed) hideKind(reason string, delay time.Duration) *outcome {
	c.envelope = c.lease.ClearPutBack(c.envelope)
	c.env.lacking.Found(c.envelope.Kind, c.envelope.ID)
	return &outcome{action: requeue, reason: fmt.Sprintf(reason, c.envelope.Kind), delay: delay}
}

// poisonKind dead-letters a job if no worker has had its kind for an hour, if this
// delivery may acquire its record and no worker has made progress with it. A job in
// progress waits for a worker that has its kind, however long that takes.
func (c *claimed) poisonKind(ctx context.Context, reason string) *outcome {
	f, err := c.lookup(ctx)
	if err != nil {
		return stopped(ctx, err)
	}
	if f.ruling == checkpoint.Acquire && f.record.InProgress() {
		c.log.WarnContext(ctx, "job in progress waits for a worker with its kind: start one, or purge the job's message", "fraction",
			f.record.Fraction)
		return c.lackKind(reason+"; the job is in progress", c.env.Jitter.Vary(maxKindDelay))
	}
	c.env.lacking.Found(c.envelope.Kind, c.envelope.ID)
	o, out := c.own(ctx, f)
	if out != nil {
		return out
	}
	return o.ends(&outcome{action: poison, reason: reason + ", for " + unknownKindFor.String()})
}

// unknownForLong reports whether a message has been put back for unknownKindFor
// because no worker has its kind. Both times are the service's.
func unknownForLong(since, now time.Time) bool {
	return !since.IsZero() && now.Sub(since) >= unknownKindFor
}

// putBackDelay returns how long to hide a message of a kind that no worker has.
func putBackDelay(since, now time.Time) time.Duration {
	if since.IsZero() {
		since = now
	}
	return min(max(now.Sub(since)/4, minKindDelay), maxKindDelay)
}
