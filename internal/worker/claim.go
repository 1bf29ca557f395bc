package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/health"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
)

// claimGrace is how long a claim under way may continue after a stop, so that its
// messages can be released instead of being hidden until their visibility timeout
// expires.
const claimGrace = time.Second

// claimer keeps the slots busy. All of it belongs to the goroutine of the claim
// loop.
type claimer struct {
	runner     *delivery.Runner
	departure  *drain.Departure
	leave      func() // starts the drain for the departure
	deliveries *sync.WaitGroup
	loop       *health.Loop
	jitter     retry.Jitter
	log        *slog.Logger

	slots    int
	free     int // of the slots
	ended    chan ended
	cleanup  context.Context // outlives a stop up to the end of the drain
	buffer   []*queue.Lease
	rotation *queueRotation
	average  delivery.MovingAverage // of how long jobs take

	// skipped counts the jobs in a row that this worker left to others because they
	// fail on it. Nothing is claimed before restUntil because of them.
	skipped   int
	restUntil time.Time
}

// ended is the end of a delivery.
type ended struct {
	result delivery.Result
	took   time.Duration
}

// claimLoop claims messages and starts a delivery for each, in deliveries, until
// ctx ends. It releases what it claimed and did not start.
func (w *Worker) claimLoop(ctx context.Context, deliveries *sync.WaitGroup) {
	cleanup, cancel := drain.Outlive(ctx, drain.UntilEnd)
	defer cancel()
	c := &claimer{
		runner: w.runner, departure: w.departure, leave: w.events.Leave, deliveries: deliveries, loop: w.loops.claim, jitter: w.Jitter, log: w.Log,
		slots: w.Concurrency, free: w.Concurrency, ended: make(chan ended, w.Concurrency),
		cleanup: w.runner.NewTries(ctx).In(cleanup), rotation: newQueueRotation(w.TakeFrom, w.Jitter),
	}
	defer c.loop.Rest()
	for ctx.Err() == nil {
		c.loop.Turn(time.Now(), claimTurn)
		state, closing := c.departure.CloseIfDue(time.Now(), c.average.Mean)
		if closing {
			c.endClaiming(ctx, state)
		}
		if state.Closed {
			c.awaitDeparture(ctx, state)
			continue
		}
		c.start(ctx)
		c.releaseOld(ctx)
		if c.free > 0 && len(c.buffer) == 0 {
			c.claim(ctx, state)
			c.start(ctx)
		}
		c.await(ctx, state)
	}
	c.releaseAll(c.buffer)
}

// start starts a delivery for each buffered message that there is a slot for.
func (c *claimer) start(ctx context.Context) {
	for c.free > 0 && len(c.buffer) > 0 && ctx.Err() == nil {
		lease := c.buffer[0]
		c.buffer = c.buffer[1:]
		c.free--
		d := c.runner.Open(lease)
		c.deliveries.Go(func() {
			begun := time.Now()
			result := d.Run(ctx)
			c.ended <- ended{result, time.Since(begun)}
		})
	}
}

// claim asks the queue whose turn it is for as many messages as can be started
// soon, or at once while an eviction is likely.
func (c *claimer) claim(ctx context.Context, state drain.DepartureState) {
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
	visibility, _ := c.runner.Visibility()
	wanted := prefetch(c.slots, c.free, c.average.Mean)
	if state.Advised {
		wanted = min(c.free, queue.MaxClaim)
	}
	wanted = source.atMost(min(wanted, most), time.Now())
	leases, err := source.queue.Claim(grace, wanted, visibility)
	c.rotation.record(source, c.resultOf(leases, wanted), time.Now())
	source.observe(err, time.Now(), visibility)
	if err != nil && ctx.Err() == nil {
		c.runner.Throttled(err)
		c.log.WarnContext(ctx, "no messages claimed; trying again", "error", err, "queue", source.queue.Name(), "tries", source.empty,
			"asked_for", wanted, "next_claims_ask_for", source.atMost(queue.MaxClaim, time.Now()))
	}
	for _, lease := range leases {
		if !c.runner.Adopt(lease) {
			c.buffer = append(c.buffer, lease)
		}
	}
}

// resultOf returns what a claim of wanted messages brought. Messages of kinds that
// this worker lacks are no work for it.
func (c *claimer) resultOf(leases []*queue.Lease, wanted int) claimResult {
	switch {
	case slices.ContainsFunc(leases, c.runner.Has):
		return someWork
	case len(leases) >= wanted:
		return moreBehind
	default:
		return noWork
	}
}

// await returns when there may be something to do: a slot is free, a buffered
// message is old, a queue may be asked again, the departure changed, or ctx ended.
func (c *claimer) await(ctx context.Context, state drain.DepartureState) {
	wait := max(time.Until(c.rotation.due()), c.restTime(time.Now()))
	switch {
	case len(c.buffer) > 0:
		wait = time.Until(c.buffer[0].AskedAt.Add(c.maxBuffered()))
	case c.free == 0:
		wait = longestPoll
	case wait <= 0:
		return
	}
	wait = state.UntilClose(time.Now(), c.average.Mean, wait)
	if e, ok := c.waitEnded(ctx, state, wait); ok {
		c.learn(e, time.Now())
	}
}

// waitEnded waits until a delivery ends, and returns how. ok is false if that did
// not happen in the time, or the departure changed or ctx ended before.
func (c *claimer) waitEnded(ctx context.Context, state drain.DepartureState, wait time.Duration) (e ended, ok bool) {
	now := time.Now()
	c.loop.Turn(now, max(wait, 0)+claimTurn)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-state.Changed:
	case <-timer.C:
	case e := <-c.ended:
		c.free++
		return e, true
	}
	return ended{}, false
}

// learn learns from the end of a delivery how long jobs take, and how many in a row
// were skipped. While nothing else comes, claims get as rare as those of an empty
// queue: they only hide messages from others.
func (c *claimer) learn(e ended, now time.Time) {
	switch e.result {
	case delivery.Skipped:
		c.skipped++
		c.restUntil = now.Add(c.jitter.Vary(pollDelay(c.skipped)))
	case delivery.Ran:
		c.average.Add(e.took)
		c.skipped, c.restUntil = 0, time.Time{}
	case delivery.NotRun: // says nothing
	}
}

// claimable returns how many messages may be claimed at now as far as the circuit
// breakers go.
func (c *claimer) claimable(now time.Time) int {
	if now.Before(c.restUntil) {
		return 0
	}
	most, _ := c.runner.Claimable(queue.MaxClaim, now)
	return most
}

// restTime is how long the circuit breakers let nothing be claimed.
func (c *claimer) restTime(now time.Time) time.Duration {
	_, wait := c.runner.Claimable(queue.MaxClaim, now)
	return max(wait, c.restUntil.Sub(now))
}

// releaseOld releases messages that waited for a slot for too long, so that another
// worker can have them.
func (c *claimer) releaseOld(ctx context.Context) {
	old, most := 0, c.maxBuffered()
	for old < len(c.buffer) && time.Since(c.buffer[old].AskedAt) >= most {
		old++
	}
	if old > 0 {
		c.log.DebugContext(ctx, "releasing messages that no slot got free for", "messages", old)
		c.releaseAll(c.buffer[:old])
		c.buffer = c.buffer[old:]
	}
}

// maxBuffered is how long a message may wait for a slot: until it would have to be
// renewed, and no longer than bufferedFor.
func (c *claimer) maxBuffered() time.Duration {
	_, renewAfter := c.runner.Visibility()
	return min(renewAfter, bufferedFor)
}

// releaseAll releases messages whose jobs were not started. A stop does not cut it
// short.
func (c *claimer) releaseAll(leases []*queue.Lease) {
	var group errgroup.Group
	group.SetLimit(drain.Parallel)
	for _, lease := range leases {
		group.Go(func() error {
			if err := lease.Release(c.cleanup, 0); err != nil {
				c.log.WarnContext(c.cleanup, "message not released; it becomes visible when its visibility timeout expires", "message_id", lease.ID, "error", err)
			}
			return nil
		})
	}
	_ = group.Wait() // its functions return no error
}

// endClaiming ends claiming because the VM will go. Messages that wait for a slot
// are released, and every running job checks whether it can finish.
func (c *claimer) endClaiming(ctx context.Context, state drain.DepartureState) {
	c.log.InfoContext(ctx, "claiming ended; jobs that will not be done in time are handed over", "type", state.Event.Event.Type,
		"event_id", state.Event.Event.ID, "gone_in", time.Until(state.Gone), "usual_job", c.average.Mean)
	c.releaseAll(c.buffer)
	c.buffer = nil
	c.runner.RecheckAll()
}

// awaitDeparture waits while the active jobs come to their ends. When there is none
// left, or no time, it starts the drain for the departure, which ends ctx.
func (c *claimer) awaitDeparture(ctx context.Context, state drain.DepartureState) {
	if c.free == c.slots || !time.Now().Before(state.LeavesAt()) {
		c.leave()
	}
	_, _ = c.waitEnded(ctx, state, time.Until(state.LeavesAt()))
}
