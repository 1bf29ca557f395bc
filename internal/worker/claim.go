package worker

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/hedge"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/telemetry/health"
	"github.com/spotworker/spotworker/internal/worker/intake"
)

// claimGrace is how long a claim under way may continue after a stop, so that its
// messages can be released instead of being hidden until their visibility timeout
// expires.
const claimGrace = time.Second

// claimer keeps the slots busy. All of it belongs to the goroutine of the claim
// loop, but for the claims in flight, which report to it.
type claimer struct {
	runner     *delivery.Runner
	departure  *drain.Departure
	pause      *pause
	leave      func() // starts the drain for the departure
	endIdle    func() // ends the worker because it was idle
	deliveries *sync.WaitGroup
	work       chan *delivery.Delivery // for the goroutines that run deliveries
	serving    int                     // such goroutines
	loop       *health.Loop
	pressure   *intake.Pressure
	log        *slog.Logger

	slots    slots
	buffer   []*queue.Lease // in the order in which they were asked for
	inFlight claimsInFlight
	rotation *queueRotation
	idleness idleness
	cleanup  context.Context // outlives a stop up to the end of the drain
	timer    *time.Timer     // for waitAny

	// pauseChanged is closed when claiming is paused or unpaused.
	pauseChanged <-chan struct{}
}

// claim is one call that asks a queue for messages.
type claim struct {
	source     *queueState
	wanted     int
	visibility time.Duration
	begun      time.Time
}

// claimed is the end of a claim.
type claimed struct {
	*claim
	leases []*queue.Lease
	err    error
}

// claimsInFlight are the claims that have not been answered.
type claimsInFlight struct {
	claims []*claim // the oldest first
	ended  chan claimed
	took   delivery.MovingAverage // how long claims take
}

// claimLoop claims messages and starts a delivery for each, in deliveries, until ctx
// ends; cleanup outlives that. It releases the messages that it claimed and did not start.
func (w *Worker) claimLoop(ctx, cleanup context.Context, deliveries *sync.WaitGroup) {
	c := &claimer{
		runner: w.runner, departure: w.departure, pause: &w.steering.pause, leave: w.events.Leave, endIdle: w.endIdle,
		deliveries: deliveries, work: make(chan *delivery.Delivery, w.Concurrency), idleness: newIdleness(w.ExitWhenIdle, time.Now()),
		loop: w.loops.claim, pressure: w.Pressure, log: w.Log,
		slots: newSlots(w.Concurrency, w.Jitter), inFlight: claimsInFlight{ended: make(chan claimed, intake.MaxClaims)},
		cleanup: hedge.NewTries(ctx).In(cleanup), timer: stoppedTimer(),
		rotation: newQueueRotation(w.sources.Taken(), w.Stores.First, w.fleet.Taking, w.Jitter),
	}
	defer c.loop.Rest()
	defer close(c.work)
	for ctx.Err() == nil {
		state, closing := c.departure.CloseIfDue(time.Now(), c.slots.average.Mean)
		if closing {
			c.endClaiming(ctx, state)
		}
		if state.Closed {
			c.idleness.busy = true
			c.awaitDeparture(ctx, state)
			continue
		}
		var paused bool
		if paused, c.pauseChanged = c.pause.current(); paused {
			c.releaseAll(c.buffer)
			c.buffer = nil
			c.idleness.busy = true
			c.waitAny(ctx, state, state.UntilClose(time.Now(), c.slots.average.Mean, longestPoll))
			continue
		}
		c.rotation.setQueues(w.sources.Taken())
		c.start(ctx)
		c.releaseOld(ctx)
		if c.idle(time.Now()) {
			c.endIdle()
			continue
		}
		c.await(ctx, state, c.claim(ctx, state))
	}
	c.releaseRest(ctx)
}

// start starts a delivery for each buffered message that there is a slot for. Messages
// of a queue that is at its limit are started one after the other.
func (c *claimer) start(ctx context.Context) {
	for c.slots.free > 0 && ctx.Err() == nil {
		lease := c.takeStartable(time.Now())
		if lease == nil {
			return
		}
		c.slots.free--
		if c.serving < c.slots.all-c.slots.free {
			c.serving++
			c.deliveries.Go(func() { c.serve(ctx) })
		}
		c.work <- c.runner.Open(lease)
	}
}

// serve runs one delivery after the other until the claim loop ends. A goroutine for each
// delivery would grow its stack each time, which takes a tenth of the processor time of a short
// job.
func (c *claimer) serve(ctx context.Context) {
	for d := range c.work {
		begun := time.Now()
		result := d.Run(ctx, c.cleanup)
		c.slots.ended <- ended{result, time.Since(begun)}
	}
}

// claim sends the claims that are due, to the queues whose turn it is. It returns how
// long to wait until the next may be due, as far as that does not depend on the end of
// a job or of a claim.
func (c *claimer) claim(ctx context.Context, state drain.DepartureState) (wait time.Duration) {
	c.rotation.observePressure(c.pressure, time.Now())
	for ctx.Err() == nil {
		now := time.Now()
		most := c.claimable(now)
		if most == 0 {
			return c.restTime(now)
		}
		next, ok := c.next(state, most, now)
		if !ok {
			return min(c.rotation.due(now).Sub(now), c.rotation.stuckAt(c.inFlight.claims, now).Sub(now))
		}
		c.send(ctx, next)
	}
	return 0
}

// claimable returns how many messages may be claimed at now as far as the circuit
// breakers go.
func (c *claimer) claimable(now time.Time) int {
	if now.Before(c.slots.restUntil) {
		return 0
	}
	most, _ := c.runner.Claimable(queue.MaxClaim, now)
	return most
}

// restTime is how long the circuit breakers let nothing be claimed.
func (c *claimer) restTime(now time.Time) time.Duration {
	_, wait := c.runner.Claimable(queue.MaxClaim, now)
	return max(wait, c.slots.restUntil.Sub(now))
}

// next returns the claim to send now, if one is due. Where the circuit breakers let
// fewer messages through than a claim may bring, it is the only one.
func (c *claimer) next(state drain.DepartureState, most int, now time.Time) (*claim, bool) {
	d := intake.Demand{
		Slots: c.slots.all, Free: c.slots.free, Buffered: len(c.buffer), Mean: c.slots.average.Mean, Claim: c.inFlight.took.Mean,
		Quiet:   now.Sub(c.slots.lastEnd),
		Backlog: c.rotation.hasBacklog() && !state.Advised,
	}
	c.rotation.observeStuck(c.inFlight.claims, now)
	inFlight := 0
	for _, claim := range c.inFlight.claims {
		if !claim.source.stuck {
			d.Asked += claim.wanted
			inFlight++
		}
	}
	wanted := d.Wanted()
	if most < queue.MaxClaim {
		wanted = min(wanted, most-d.Asked-d.Buffered)
	}
	if wanted <= 0 || inFlight >= d.Claims() || len(c.inFlight.claims) >= cap(c.inFlight.ended) {
		return nil, false
	}
	source := c.rotation.turn(now)
	if source == nil {
		return nil, false
	}
	visibility, _ := c.runner.ClaimVisibility()
	return &claim{source: source, wanted: source.atMost(wanted, now), visibility: visibility, begun: now}, true
}

// send sends a claim. A stop lets it continue for a while, so that its messages are
// known and can be released.
func (c *claimer) send(ctx context.Context, next *claim) {
	c.inFlight.claims = append(c.inFlight.claims, next)
	next.source.inFlight++
	next.source.pace.Sent(next.begun, next.wanted)
	go func() {
		grace, cancel := drain.Outlive(ctx, drain.UntilAfter(claimGrace))
		defer cancel()
		if c.rotation.isFirst(next.source) {
			grace = outage.Optional(grace)
		}
		leases, err := next.source.queue.ClaimOnce(grace, next.wanted, next.visibility)
		c.inFlight.ended <- claimed{next, leases, err}
	}()
}

// receive adds the messages of a claim to the buffer, and learns from its end.
func (c *claimer) receive(ctx context.Context, r claimed) {
	now := time.Now()
	c.inFlight.claims = slices.DeleteFunc(c.inFlight.claims, func(other *claim) bool { return other == r.claim })
	r.source.inFlight--
	gave := c.resultOf(r)
	if gave == someWork && r.source.empty > 0 {
		r.source.observeWait(waitedFor(r.leases), now)
	}
	c.rotation.record(r.source, gave, now)
	c.idleness.observeClaim(r, gave, now)
	if r.err == nil {
		c.inFlight.took.Add(now.Sub(r.begun))
		r.source.pace.Got(r.wanted, len(r.leases))
		c.rotation.setBacklog(r.source, gave == someWork && len(r.leases) >= r.wanted)
	}
	if gave == refused {
		r.source.pace.Refused(now)
	}
	begins := r.source.observe(r.err, now, r.visibility)
	switch {
	case gave == absent:
		c.doWithout(ctx, r)
	case r.err == nil:
		r.source.absent = false
	case ctx.Err() == nil:
		c.logFailure(ctx, r, gave, begins && r.wanted > 1, now)
	}
	for _, lease := range r.leases {
		if !c.runner.Adopt(lease) {
			c.buffer = append(c.buffer, lease)
		}
	}
	slices.SortStableFunc(c.buffer, func(a, b *queue.Lease) int { return a.AskedAt.Compare(b.AskedAt) })
}

// logFailure logs a claim that failed. Refusals are ordinary where a queue is at its
// limit. A claim of several messages that the service answered with an error is logged also
// where it looks like an outage: one message may be the cause.
func (c *claimer) logFailure(ctx context.Context, r claimed, gave claimResult, single bool, now time.Time) {
	if gave == refused {
		c.log.DebugContext(ctx, "storage refused a claim that came too fast; claiming more slowly", "queue", r.source.queue.Name(),
			"messages_per_second", math.Round(r.source.pace.Rate()), "error", r.err)
		return
	}
	level := outage.Level(r.err, slog.LevelWarn)
	if single && !isUnanswered(r.err) {
		level = slog.LevelWarn
	}
	c.log.Log(ctx, level, "no messages claimed; trying again", "error", r.err, "queue", r.source.queue.Name(), "tries", r.source.failures,
		"asked_for", r.wanted, "next_claims_ask_for", r.source.atMost(queue.MaxClaim, now))
}

// doWithout works without the queue First, which does not exist or may not be read.
func (c *claimer) doWithout(ctx context.Context, r claimed) {
	c.runner.KeepFromFirst(r.source.due)
	if !r.source.absent {
		r.source.absent = true
		c.log.WarnContext(ctx, "queue cannot be used; released jobs wait behind the others, and urgent ones for this queue", "queue",
			r.source.queue.Name(), "retry_in", absentFor, "error", r.err)
	}
}

// resultOf returns the result of a claim. Messages of kinds that this worker lacks are
// no work for it.
func (c *claimer) resultOf(r claimed) claimResult {
	switch {
	case queue.TooFast(r.err):
		return refused
	case c.rotation.isFirst(r.source) && hidesNone(r.err):
		return absent
	case r.err != nil && r.wanted == 1 && !isUnanswered(r.err) && !hidesNone(r.err):
		return failedAlone
	case r.err != nil:
		return failed
	case len(r.leases) == 0:
		return noMessages
	case slices.ContainsFunc(r.leases, c.runner.Has):
		return someWork
	case len(r.leases) >= r.wanted:
		return moreBehind
	default:
		return othersWork
	}
}

// waitedFor returns for how long the newest of some messages was on the queue, by the
// service's clock; 0 if some of them were claimed before.
func waitedFor(leases []*queue.Lease) time.Duration {
	var waited time.Duration
	for i, lease := range leases {
		if lease.Deliveries > 1 {
			return 0
		}
		if on := lease.ClaimedAt.Sub(lease.InsertedAt); i == 0 || on < waited {
			waited = on
		}
	}
	return waited
}

// await returns when there may be something to do: a slot is free, a claim has ended, a
// buffered message is old, a queue may be asked again after wait, claiming was paused,
// the departure changed, or ctx ended.
func (c *claimer) await(ctx context.Context, state drain.DepartureState, wait time.Duration) {
	if len(c.buffer) > 0 {
		wait = min(wait, time.Until(c.buffer[0].AskedAt.Add(c.maxBuffered())))
		if c.slots.free > 0 {
			wait = min(wait, time.Until(c.rotation.startDue(c.buffer)))
		}
	}
	c.waitAny(ctx, state, state.UntilClose(time.Now(), c.slots.average.Mean, wait))
}

// waitAny waits until a delivery or a claim ends, and learns from all that have ended.
// It returns earlier if the time is over, claiming was paused or unpaused, the departure
// changed or ctx ended.
func (c *claimer) waitAny(ctx context.Context, state drain.DepartureState, wait time.Duration) {
	c.turn(max(wait, 0))
	c.timer.Reset(wait)
	defer c.timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-state.Changed:
	case <-c.pauseChanged:
	case <-c.timer.C:
	case e := <-c.slots.ended:
		c.learn(e, time.Now())
	case r := <-c.inFlight.ended:
		c.receive(ctx, r)
	}
	for {
		select {
		case e := <-c.slots.ended:
			c.learn(e, time.Now())
		case r := <-c.inFlight.ended:
			c.receive(ctx, r)
		default:
			return
		}
	}
}

// learn takes the end of a delivery.
func (c *claimer) learn(e ended, now time.Time) {
	c.slots.learn(e, now)
	c.idleness.observeEnd(e, now)
}

// stoppedTimer returns a timer that has not been started.
func stoppedTimer() *time.Timer {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return timer
}

// turn reports that the loop turned, and will do so again after wait. A claim that does
// not come back makes it hang.
func (c *claimer) turn(wait time.Duration) {
	if len(c.inFlight.claims) > 0 {
		c.loop.Turn(c.inFlight.claims[0].begun, claimTurn)
		return
	}
	c.loop.Turn(time.Now(), wait+claimTurn)
}

// endClaiming ends claiming because the VM will go. Messages that wait for a slot
// are released, and every running job checks whether it can finish.
func (c *claimer) endClaiming(ctx context.Context, state drain.DepartureState) {
	c.log.InfoContext(ctx, "claiming ended; jobs that will not be done in time are handed over", "event_type", state.Event.Event.Type,
		"event_id", state.Event.Event.ID, "gone_in", time.Until(state.Gone), "usual_job", c.slots.average.Mean)
	c.runner.RecheckAll()
}

// awaitDeparture waits while the active jobs come to their ends, and releases the
// messages that have no slot. When no job is left, or no time, it starts the drain for
// the departure, which ends ctx.
func (c *claimer) awaitDeparture(ctx context.Context, state drain.DepartureState) {
	if len(c.buffer) > 0 {
		c.releaseAll(c.buffer)
		c.buffer = nil
	}
	if c.slots.free == c.slots.all && len(c.inFlight.claims) == 0 || !time.Now().Before(state.LeavesAt()) {
		c.leave()
	}
	c.waitAny(ctx, state, time.Until(state.LeavesAt()))
}
