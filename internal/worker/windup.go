package worker

import (
	"context"
	"time"

	"github.com/spotworker/spotworker/internal/drain"
)

// endClaiming ends claiming because the VM will go. Messages that wait for a slot are
// released, and every job finds out whether it may go on.
func (c *claimer) endClaiming(ctx context.Context, p drain.DepartureState) {
	c.Log.InfoContext(ctx, "claiming ended; jobs that will not be done in time are handed over", "type", p.Event.Event.Type,
		"event_id", p.Event.Event.ID, "gone_in", time.Until(p.Gone), "usual_job", c.average.mean)
	c.releaseAll(c.cleanup, c.buffer)
	c.buffer = nil
	c.running.wakeAll()
}

// awaitDeparture waits while the jobs in hand come to their ends. When there is none
// left, or no time, it leaves, which ends ctx. It returns as soon as there may be
// something else to do.
func (c *claimer) awaitDeparture(ctx context.Context, p drain.DepartureState) {
	if c.free == c.Concurrency || !time.Now().Before(p.LeavesAt()) {
		c.leave()
	}
	now := time.Now()
	wait := p.LeavesAt().Sub(now)
	c.loops.claim.Turn(now, max(wait, 0)+claimTurn)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-p.Changed:
	case <-timer.C:
	case <-c.ended:
		c.free++
	}
}
