package delivery

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/outage"
	"github.com/spotworker/spotworker/internal/presence"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

// Bounds of how long a job over the concurrency of its kind waits.
const (
	// slotPatience is how long it may wait in its slot of the worker.
	slotPatience = 10 * time.Second

	// minRequeue and maxRequeue bound how long its message is hidden otherwise: until
	// a slot of the kind should be free.
	minRequeue = 5 * time.Second
	maxRequeue = time.Minute
)

const (
	// pausedHidden is how long the message of a paused kind is hidden each time that it
	// is claimed: a long backlog costs calls, and an end of the pause takes that long.
	pausedHidden = time.Minute

	// pausedLook is how long a worker waits that has only paused kinds.
	pausedLook = time.Second
)

// kindLimits bounds how many jobs of a kind run at once, where the kind has such a
// limit. A job over it waits in its slot of the worker if that promises to be short,
// and is requeued otherwise, uncounted, with its record untouched. So a kind never
// holds more slots of the worker than twice its limit, half of them for 10 s.
type kindLimits map[string]*kindSlots

// kindSlots are the slots of one kind.
type kindSlots struct {
	jitter retry.Jitter
	taken  chan struct{} // holds one for each job that runs

	mu      sync.Mutex
	waiting int
	average MovingAverage // of how long jobs of the kind take
}

func newKindLimits(kinds job.Kinds, jitter retry.Jitter) kindLimits {
	p := kindLimits{}
	for kind, handler := range kinds {
		if limit := job.LimitsOf(handler).Concurrency; limit > 0 {
			p[kind] = &kindSlots{jitter: jitter, taken: make(chan struct{}, limit)}
		}
	}
	return p
}

// enter waits for a slot of the kind. The caller must call leave. ok is false if the job
// is to be requeued, or ctx ended.
func (p kindLimits) enter(ctx context.Context, kind string) (leave func(), out outcome, ok bool) {
	k := p[kind]
	if k == nil {
		return func() {}, outcome{}, true
	}
	if !k.wait(ctx) {
		if err := context.Cause(ctx); err != nil {
			return nil, stopped(ctx, fmt.Errorf("slot for kind %q: %w", kind, err)), false
		}
		return nil, outcome{action: requeue, reason: fmt.Sprintf("%d of kind %q run on this worker already", cap(k.taken), kind), delay: k.delay()}, false
	}
	begun := time.Now()
	return func() { k.leave(time.Since(begun)) }, outcome{}, true
}

// wait reports whether it got a slot.
func (k *kindSlots) wait(ctx context.Context) bool {
	select {
	case k.taken <- struct{}{}:
		return true
	default:
	}
	k.mu.Lock()
	waits := mayWait(cap(k.taken), k.waiting, k.average.Mean)
	if waits {
		k.waiting++
	}
	k.mu.Unlock()
	if !waits {
		return false
	}
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.waiting--
	}()
	timer := time.NewTimer(slotPatience)
	defer timer.Stop()
	select {
	case k.taken <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func (k *kindSlots) leave(took time.Duration) {
	k.mu.Lock()
	k.average.Add(took)
	k.mu.Unlock()
	<-k.taken
}

func (k *kindSlots) delay() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := requeueDelay(cap(k.taken), k.average.Mean)
	return k.jitter.Vary(d) // so that many do not come back at once
}

// mayWait reports whether a job that finds limit jobs of its kind running, and others
// waiting, should wait in its slot of the worker too. meanRun is how long jobs of the
// kind take, 0 if that is unknown.
func mayWait(limit, waiting int, meanRun time.Duration) bool {
	return waiting < limit && meanRun/time.Duration(limit) <= slotPatience
}

// requeueDelay returns how long to hide a job that does not wait: until a slot should be
// free, minRequeue … maxRequeue.
func requeueDelay(limit int, meanRun time.Duration) time.Duration {
	return min(max(meanRun/time.Duration(limit), minRequeue), maxRequeue)
}

// MovingAverage is a moving average of how long jobs take. The zero value has seen
// none.
type MovingAverage struct{ Mean time.Duration }

// Add adds the time of one job.
func (a *MovingAverage) Add(took time.Duration) {
	if took = max(took, time.Microsecond); a.Mean == 0 {
		a.Mean = took
		return
	}
	a.Mean += (took - a.Mean) / 8
}

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

// Idle returns how many workers take from the queue and have no job, by the last sample,
// and when that was taken. It is 0 where heartbeats could not be listed.
func (f *Fleet) Idle(queue string) (workers int, at time.Time) {
	sample := f.last()
	for _, p := range sample.Workers {
		if p.Age <= lacksKindFor && p.State == lifecycle.Process.String() && p.Count == 0 && p.Takes(queue) {
			workers++
		}
	}
	return workers, sample.at
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
// A job of a kind that an operator paused waits, also if this worker lacks the kind.
func (d *Delivery) findHandler(ctx context.Context) (job.Handler, outcome, bool) {
	if d.runner.isPaused(d.envelope.Kind) {
		d.envelope = d.lease.ClearPutBack(d.envelope)
		return nil, outcome{action: skip, reason: fmt.Sprintf("kind %q is paused", d.envelope.Kind), delay: d.runner.jitter.Vary(pausedHidden)}, false
	}
	if handler := d.runner.kinds[d.envelope.Kind]; handler != nil {
		return handler, outcome{}, true
	}
	kind := d.envelope.Kind
	seen, err := d.runner.fleet.Sample(ctx, sampleEvery)
	if err != nil {
		d.log.Log(ctx, outage.Level(err, slog.LevelWarn), "heartbeats not listed; another worker may run this kind of job", "error", err)
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
