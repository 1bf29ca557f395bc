package delivery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/delivery/breaker"
	"github.com/spotworker/spotworker/job"
)

// places are what a job holds while it may run: the pass of its kind's circuit breaker, and a
// slot of the kind.
type places struct {
	pass      breakerPass
	leaveKind func() // nil before the job has a slot
}

// enter takes the places that a job needs, or returns the outcome of a job that is not run. The
// caller must leave in any case.
func (c *claimed) enter(ctx context.Context) (p places, out *outcome) {
	if out := c.awaitDuplicate(ctx); out != nil {
		return p, out
	}
	if p.pass, out = enterBreaker(ctx, c); out != nil {
		return p, out
	}
	p.leaveKind, out = c.enterKind(ctx)
	return p, out
}

// leave gives back the places of a job with that outcome.
func (p places) leave(ctx context.Context, out *outcome) {
	if p.leaveKind != nil {
		p.leaveKind()
	}
	switch {
	case p.pass.job == nil:
	case out.run == nil:
		p.pass.leave(ctx, breaker.Inconclusive, false)
	default:
		p.pass.leave(ctx, out.run.breakerVerdict(out.run.progressed(), out.own.failedElsewhere()), !job.IsInterrupted(out.run.err))
	}
}

// awaitDuplicate waits for the end of another delivery of the job on this worker. It
// returns an outcome if that takes too long: the handler is never started twice at once. If
// the job is over by then, its message is removed.
func (c *claimed) awaitDuplicate(ctx context.Context) *outcome {
	if c.idLock.Wait(ctx, duplicatePatience) {
		return nil
	}
	found, err := c.lookup(ctx)
	switch {
	case err != nil:
		return stopped(ctx, err)
	case found.mayBeOwned():
		return c.later(NotRun, "this worker is running the job already: a duplicate")
	default:
		return ruled(found.ruling, found.record)
	}
}

// slotPatience is how long a job over the concurrency of its kind may wait in its slot of the worker.
const slotPatience = 10 * time.Second

// kindLimits bounds how many jobs of a kind run at once, where the kind has such a
// limit. A job over it waits in its slot of the worker if that promises to be short,
// and is requeued otherwise, with its record untouched. So a kind never
// holds more slots of the worker than twice its limit, half of them for 10 s.
type kindLimits map[string]*kindSlots

// kindSlots are the slots of one kind.
type kindSlots struct {
	taken chan struct{} // holds one for each job that runs

	mu      sync.Mutex
	waiting int
	average MovingAverage // of how long jobs of the kind take
}

func newKindLimits(kinds job.Kinds) kindLimits {
	p := kindLimits{}
	for kind, handler := range kinds {
		if limit := job.LimitsOf(handler).Concurrency; limit > 0 {
			p[kind] = &kindSlots{taken: make(chan struct{}, limit)}
		}
	}
	return p
}

// enterKind waits for a slot of the job's kind. The caller must call leave. It returns an outcome
// if the job waits, or ctx ended.
func (c *claimed) enterKind(ctx context.Context) (leave func(), out *outcome) {
	kind := c.envelope.Kind
	k := c.env.kindLimits[kind]
	if k == nil {
		return nil, nil
	}
	if !k.wait(ctx) {
		if err := context.Cause(ctx); err != nil {
			return nil, stopped(ctx, fmt.Errorf("slot for kind %q: %w", kind, err))
		}
		return nil, c.later(NotRun, fmt.Sprintf("%d of kind %q run on this worker already", cap(k.taken), kind))
	}
	begun := time.Now()
	return func() { k.leave(time.Since(begun)) }, nil
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

// mayWait reports whether a job that finds limit jobs of its kind running, and others
// waiting, should wait in its slot of the worker too. meanRun is how long jobs of the
// kind take, 0 if that is unknown.
func mayWait(limit, waiting int, meanRun time.Duration) bool {
	return waiting < limit && meanRun/time.Duration(limit) <= slotPatience
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
