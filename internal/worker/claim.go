package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/queue"
)

// claimGrace is how long a claim under way may go on after a stop, so that its
// messages can be released instead of being lost from sight until they are
// visible again.
const claimGrace = time.Second

// claimer keeps the slots busy. All of it belongs to the goroutine of the loop.
type claimer struct {
	*engine
	deliveries *sync.WaitGroup
	cleanup    context.Context    // outlives a stop by what the drain's budget allows
	ended      chan time.Duration // of each delivery that ended: how long it took, or notRun
	free       int
	buffer     []*queue.Lease
	rotation   *queueRotation
	average    movingAverage

	// skipped counts the jobs in a row that were kept off, and nothing is claimed
	// before rested because of them.
	skipped   int
	restUntil time.Time
}

// claimLoop claims messages and starts a delivery for each, in running, until
// ctx ends. What it claimed and did not start it releases.
func (e *engine) claimLoop(ctx context.Context, running *sync.WaitGroup) {
	last, cancel := drain.Outlive(ctx, drain.UntilEnd)
	defer cancel()
	last = e.latency.NewTries(ctx).In(last)
	defer e.loops.claim.Rest()
	c := &claimer{
		engine: e, deliveries: running, cleanup: last, ended: make(chan time.Duration, e.Concurrency),
		free: e.Concurrency, rotation: newQueueRotation(e.TakeFrom),
	}
	for ctx.Err() == nil {
		c.loops.claim.Turn(time.Now(), claimTurn)
		p, closing := c.departure.CloseIfDue(time.Now(), c.average.mean)
		if closing {
			c.endClaiming(ctx, p)
		}
		if p.Closed {
			c.awaitDeparture(ctx, p)
			continue
		}
		c.start(ctx)
		c.releaseOld(ctx)
		if c.free > 0 && len(c.buffer) == 0 {
			c.claim(ctx, p)
			c.start(ctx)
		}
		c.await(ctx, p)
	}
	c.releaseAll(last, c.buffer)
}

// start begins a delivery for each buffered message that there is a slot for.
func (c *claimer) start(ctx context.Context) {
	for c.free > 0 && len(c.buffer) > 0 && ctx.Err() == nil {
		lease := c.buffer[0]
		c.buffer = c.buffer[1:]
		c.free--
		d := c.open(lease)
		c.deliveries.Go(func() {
			begun := time.Now()
			switch d.deliver(ctx) {
			case requeue, putBack, storageRefused:
				c.ended <- notRun
			case skip:
				c.ended <- skippedJob
			default:
				c.ended <- time.Since(begun)
			}
		})
	}
}

// claim asks the queue whose turn it is for as many messages as can be started
// soon, or at once while an eviction is likely.
func (c *claimer) claim(ctx context.Context, p drain.DepartureState) {
	most := c.claimable(time.Now())
	if most == 0 {
		return
	}
	source := c.rotation.turn(time.Now())
	if source == nil {
		return
	}
	grace, cancel := drain.Outlive(ctx, drain.UntilAfter(claimGrace))
	defer cancel()
	visibility, _ := c.pace.current()
	wanted := prefetch(c.Concurrency, c.free, c.average.mean)
	if p.Advised {
		wanted = min(c.free, queue.MaxClaim)
	}
	wanted = source.atMost(min(wanted, most), time.Now())
	leases, err := source.Claim(grace, wanted, visibility)
	c.rotation.record(source, c.resultOf(leases, wanted), time.Now())
	source.observe(err, time.Now(), visibility)
	if err != nil && ctx.Err() == nil {
		c.pace.observe(queue.Throttled(err))
		c.Log.WarnContext(ctx, "no messages claimed; trying again", "error", err, "queue", source.Name(), "tries", source.empty,
			"asked_for", wanted, "next_claims_ask_for", source.atMost(queue.MaxClaim, time.Now()))
	}
	for _, lease := range leases {
		if !c.active.adopt(lease) {
			c.buffer = append(c.buffer, lease)
		}
	}
}

// resultOf returns what a claim of wanted messages brought. Kinds that this worker
// lacks are no work for it.
func (e *engine) resultOf(leases []*queue.Lease, wanted int) claimResult {
	mine := func(lease *queue.Lease) bool {
		envelope, err := queue.Decode(lease.Text())
		return err != nil || e.Kinds[envelope.Kind] != nil
	}
	switch {
	case slices.ContainsFunc(leases, mine):
		return someWork
	case len(leases) >= wanted:
		return moreBehind
	default:
		return noWork
	}
}

// await returns when there may be something to do: a slot got free, a buffered
// message got old, a queue may be asked again, the outlook changed, or ctx ended.
func (c *claimer) await(ctx context.Context, p drain.DepartureState) {
	wait := max(time.Until(c.rotation.due()), c.restTime(time.Now()))
	switch {
	case len(c.buffer) > 0:
		wait = time.Until(c.buffer[0].AskedAt.Add(c.buffered()))
	case c.free == 0:
		wait = longestPoll
	case wait <= 0:
		return
	}
	now := time.Now()
	wait = p.UntilClose(now, c.average.mean, wait)
	c.loops.claim.Turn(now, max(wait, 0)+claimTurn)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-p.Changed:
	case <-timer.C:
	case took := <-c.ended:
		c.free++
		c.average.add(took)
		c.trackSkipped(took, time.Now())
	}
}

// trackSkipped follows the jobs that were kept off. While nothing else comes, claims get
// as rare as those of an empty queue: they only hide messages from others.
func (c *claimer) trackSkipped(took time.Duration, now time.Time) {
	switch took {
	case skippedJob:
		c.skipped++
		c.restUntil = now.Add(pollDelay(c.skipped))
	case notRun:
	default:
		c.skipped, c.restUntil = 0, time.Time{}
	}
}

// claimable returns how many messages may be claimed at now as far as the circuit
// breakers go.
func (c *claimer) claimable(now time.Time) int {
	if now.Before(c.restUntil) {
		return 0
	}
	most, _ := c.breakers.claimable(queue.MaxClaim, now)
	return most
}

// restTime is how long the circuit breakers let nothing be claimed.
func (c *claimer) restTime(now time.Time) time.Duration {
	_, wait := c.breakers.claimable(queue.MaxClaim, now)
	return max(wait, c.restUntil.Sub(now))
}

// releaseOld releases messages that waited for a slot for too long, so that
// another worker can have them.
func (c *claimer) releaseOld(ctx context.Context) {
	old, most := 0, c.buffered()
	for old < len(c.buffer) && time.Since(c.buffer[old].AskedAt) >= most {
		old++
	}
	if old > 0 {
		c.Log.DebugContext(ctx, "releasing messages that no slot got free for", "messages", old)
		c.releaseAll(c.cleanup, c.buffer[:old]) // which a stop must not cut short
		c.buffer = c.buffer[old:]
	}
}

// buffered is how long a message may wait for a slot: until it would have to be
// renewed, and no longer than maxBuffered.
func (c *claimer) buffered() time.Duration {
	_, renewAfter := c.pace.current()
	return min(renewAfter, maxBuffered)
}
