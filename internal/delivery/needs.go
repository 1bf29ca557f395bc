package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/job"
)

// unmetFor is how long a job waits for a worker that meets the needs of its state before it
// is dead-lettered, if no worker is known to have met them in that time. The state stays: a replay
// waits again, and a replay from scratch begins without it.
const unmetFor = 24 * time.Hour

// unmetLook is how long a worker must have run to dead-letter such a job: after a pause of the
// whole fleet, other workers start too.
const unmetLook = 15 * time.Minute

// checkNeeds leaves a job to other workers if its recorded state needs another machine. It
// reads nothing of the state. instead is the outcome of a job that is acquired and not run: it may
// miss its deadline meanwhile and moves, or it waited for unmetFor and is dead-lettered.
func (c *claimed) checkNeeds(ctx context.Context, f *found) (instead, out *outcome) {
	if f.record.StateNeeds == "" { // as in a record without a state
		return nil, nil
	}
	kind, id := c.envelope.Kind, c.envelope.ID
	err := job.CheckNeeds(c.kind.handler, f.record.StateNeeds)
	if err == nil {
		c.env.unlike.Found(kind, id)
		return nil, nil
	}
	seen := c.whoMeets(ctx, f.record.StateNeeds, job.Offer(c.kind.handler))
	waited := time.Since(f.written)
	if instead = c.unmetOutcome(ctx, f.record, seen, waited, err); instead != nil {
		c.env.unlike.Found(kind, id)
		return instead, nil
	}
	delay := unmetDelay(seen.meets, waited)
	if seen.meets == presence.HasIt {
		delay = max(delay, c.env.deferred.next(time.Now(), seen.unlike))
	}
	delay = c.env.Jitter.Vary(delay)
	if seen.meets == presence.HasNot {
		c.env.unlike.Hide(kind, id, time.Now(), delay)
	} else {
		c.env.unlike.Found(kind, id)
	}
	if due, leftOut := c.env.lines.putBack.Allow(kind, time.Now()); due && seen.meets != presence.HasIt {
		c.log.WarnContext(ctx, "job waits for a worker that meets the needs of its state", "reason", err, "since", f.written,
			"visible_in", delay, "suppressed", leftOut)
	}
	c.envelope = c.lease.ClearPutBack(c.envelope)
	return nil, &outcome{action: requeue, reason: err.Error(), delay: delay, unfit: true}
}

// unmetOutcome returns what happens to a job that waited for a worker that meets the needs of its
// state, nil if it waits on. unmet is why this worker does not meet them.
func (c *claimed) unmetOutcome(ctx context.Context, found checkpoint.Record, seen matches, waited time.Duration, unmet error) *outcome {
	if seen.meets == presence.HasNot || waited >= maxKindDelay {
		if moves := c.movesUnmet(ctx, found); moves != nil {
			return moves
		}
	}
	if seen.meets != presence.HasNot || seen.lately || waited < unmetFor || time.Since(c.env.Started) < unmetLook {
		return nil
	}
	return &outcome{action: poison, reason: fmt.Sprintf("no live worker of queue %s has been known to meet the needs of its state for %s: "+
		"%v; start a worker that does and replay it, or start over with spotctl poison replay --from-scratch", c.lease.Queue().Name(),
		unmetFor, unmet)}
}

// matches says which other workers meet the needs of a state.
type matches struct {
	meets  presence.Has // whether a live worker does
	unlike int          // how many live workers do not, this worker included
	lately bool         // a worker did within unmetFor
}

// whoMeets returns which other workers meet the needs of a state, by their first word. Where
// this worker offers that word too and still cannot continue, the word of another worker proves
// nothing.
func (c *claimed) whoMeets(ctx context.Context, needs, own string) (m matches) {
	seen, err := c.env.Fleet.Sample(ctx, sampleEvery)
	if err != nil {
		c.log.Log(ctx, outage.Level(err, slog.LevelWarn), "heartbeats not listed; another worker may run this kind of job", "error", err)
		return matches{meets: presence.MayHave, unlike: 1}
	}
	kind, queue, now := c.envelope.Kind, c.lease.Queue().Name(), time.Now()
	m.meets, m.unlike = seen.whoMeets(kind, queue, needs, c.env.owner, now)
	if own != presence.OfferFor(needs) {
		m.lately = seen.metLately(kind, queue, needs, c.env.owner, now, unmetFor)
	} else if m.meets == presence.HasIt {
		m.meets = presence.HasNot
	}
	return m
}

// unmetDelay returns how long to hide a message for other workers: longer the longer its job
// waits. Where a worker meets the needs, it is probably busy.
func unmetDelay(meets presence.Has, waited time.Duration) time.Duration {
	if meets == presence.HasIt {
		return min(max(waited/16, minDefer), maxKindDelay)
	}
	return min(max(waited/4, minKindDelay), maxDefer)
}
