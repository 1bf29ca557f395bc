package delivery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/delivery/breaker"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/job"
)

// places are what a job holds while it may run: the pass of its kind's circuit breaker, a slot of
// the kind, and devices.
type places struct {
	pass  breakerPass
	begun time.Time

	giveBack []func(ran time.Duration) // slot and devices; 0 for a job that was not run
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
	for _, enter := range []func(context.Context) (func(time.Duration), *outcome){c.enterKind, c.reserveDevices} {
		give, out := enter(ctx)
		if out != nil {
			return p, out
		}
		if give != nil {
			p.giveBack = append(p.giveBack, give)
		}
	}
	p.begun = time.Now()
	return p, nil
}

// leave gives back the places of a job with that outcome.
func (p places) leave(ctx context.Context, out *outcome) {
	var ran time.Duration
	if out.run != nil {
		ran = time.Since(p.begun)
	}
	for _, give := range p.giveBack {
		give(ran)
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

// slotPatience is how long a job may wait in its slot of the worker for a slot of its kind, and for
// devices. It is freePatience for a slot of its kind while another worker has one.
const (
	slotPatience = 10 * time.Second
	freePatience = minDefer / 4
)

// kindLimits bounds how many jobs of a kind run at once, where the kind has such a
// limit. A job over it waits in its slot of the worker if that promises to be short,
// and is requeued otherwise, with its record untouched: soon to be claimed by a worker that has a
// slot for it, if there is one. So a kind never
// holds more slots of the worker than twice its limit, half of them for 10 s.
type kindLimits map[string]*kindSlots

// kindSlots are the slots of one kind.
type kindSlots struct {
	taken chan struct{} // holds one for each job that runs
	line
}

// line are the jobs that wait in slots of the worker.
type line struct {
	mu      sync.Mutex
	waiting int
	average MovingAverage // of how long the jobs take for which they wait
}

// join reports whether one more may wait for jobs of which limit run. It must leave then.
func (l *line) join(limit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	waits := mayWait(limit, l.waiting, l.average.Mean)
	if waits {
		l.waiting++
	}
	return waits
}

func (l *line) quit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting--
}

// learn adds the time of a job; 0 is of one that was not run.
func (l *line) learn(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if took > 0 {
		l.average.Add(took)
	}
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
func (c *claimed) enterKind(ctx context.Context) (leave func(time.Duration), out *outcome) {
	kind := c.envelope.Kind
	k := c.env.kindLimits[kind]
	if k == nil {
		return nil, nil
	}
	limit := cap(k.taken)
	free, full := 0, 0 // other workers
	if len(k.taken) == limit {
		free, full = c.seeSlots(ctx, limit)
	}
	patience := slotPatience
	if free > 0 {
		patience = freePatience
	}
	if k.wait(ctx, patience) {
		return k.leave, nil
	}
	if err := context.Cause(ctx); err != nil {
		return nil, stopped(ctx, fmt.Errorf("slot for kind %q: %w", kind, err))
	}
	out = c.later(NotRun, fmt.Sprintf("%d of kind %q run on this worker already", limit, kind))
	if free > 0 { // this worker claims less often until it runs a job
		out.waits, out.delay = Skipped, c.env.Jitter.Vary(c.env.deferred.next(time.Now(), 1+full))
	}
	return nil, out
}

// seeSlots returns how many other workers have fewer jobs than the limit of the job's kind, and how
// many have more, by the heartbeats.
func (c *claimed) seeSlots(ctx context.Context, limit int) (free, full int) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	seen, err := c.env.Fleet.Sample(ctx, sampleEvery)
	if err != nil {
		return 0, 0
	}
	return seen.slots(limit, c.envelope.Kind, c.lease.Queue().Name(), c.env.owner)
}

// wait reports whether it got a slot.
func (k *kindSlots) wait(ctx context.Context, patience time.Duration) bool {
	select {
	case k.taken <- struct{}{}:
		return true
	default:
	}
	if !k.join(cap(k.taken)) {
		return false
	}
	defer k.quit()
	timer := time.NewTimer(patience)
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
	k.learn(took)
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

// Devices are devices of this machine that jobs reserve, such as GPUs.
type Devices interface {
	// Reserve reserves the devices that a job needs until release is called, which is nil for a job
	// that needs none. payload is nil if it is in a blob. While other jobs have them, changed is not
	// nil, and is closed when some may be free. The error is a reason for another machine.
	Reserve(kind, id string, payload []byte) (release func(), changed <-chan struct{}, err error)

	// Wanted returns how many devices a job needs.
	Wanted(kind string, payload []byte) int

	// Count returns how many devices this machine has.
	Count() int
}

// reserveDevices reserves the devices that the job needs. It returns an outcome if the job waits, or
// ctx ended.
func (c *claimed) reserveDevices(ctx context.Context) (leave func(time.Duration), out *outcome) {
	if c.env.Devices == nil {
		return nil, nil
	}
	payload, _ := c.envelope.Payload.Inline()
	reserve := func() (func(), <-chan struct{}, error) {
		return c.env.Devices.Reserve(c.envelope.Kind, c.envelope.ID, payload)
	}
	release, changed, err := reserve()
	if changed != nil && c.env.deviceLine.join(c.env.Devices.Count()) {
		release, changed, err = awaitDevices(ctx, changed, reserve)
		c.env.deviceLine.quit()
	}
	switch {
	case err != nil:
		if due, leftOut := c.env.lines.putBack.Allow(c.envelope.Kind, time.Now()); due {
			c.log.WarnContext(ctx, "job left to a worker on another machine", "reason", err, "suppressed", leftOut)
		}
		out := c.later(Unfit, err.Error())
		c.env.tooLarge.Hide(presence.ForGPUs(c.envelope.Kind, c.env.Devices.Wanted(c.envelope.Kind, payload)), c.envelope.ID, time.Now(),
			out.delay)
		return nil, out
	case changed != nil && ctx.Err() != nil:
		return nil, stopped(ctx, fmt.Errorf("devices for kind %q: %w", c.envelope.Kind, context.Cause(ctx)))
	case changed != nil:
		return nil, c.later(NotRun, "other jobs of this machine have the devices")
	case release == nil:
		return nil, nil
	}
	return func(ran time.Duration) {
		c.env.deviceLine.learn(ran)
		release()
	}, nil
}

// awaitDevices waits until devices are free, as long as a job waits for a slot of its kind.
func awaitDevices(ctx context.Context, changed <-chan struct{}, reserve func() (func(), <-chan struct{}, error)) (release func(),
	still <-chan struct{}, err error) {
	timer := time.NewTimer(slotPatience)
	defer timer.Stop()
	for changed != nil {
		select {
		case <-changed:
			release, changed, err = reserve()
		case <-timer.C:
			return nil, changed, nil
		case <-ctx.Done():
			return nil, changed, nil
		}
	}
	return release, nil, err
}
