package worker

import (
	"fmt"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/fleet/presence"
)

// idleness decides when a worker without work ends. The worker is idle while it has no job
// and every queue answers its claims without a message. An unknown answer is not idleness:
// a claim that failed, a pause or an open circuit breaker restarts the time. The last claim from each queue begins at the end of the
// time, or later. Hidden messages do not count: they are running on other workers, or wait for
// their next try. Neither does the message of a job whose state needs another machine: it may
// come back every few minutes for a day.
type idleness struct {
	after time.Duration // 0: the worker never ends
	since time.Time     // the last moment with a job or without an answer
	busy  bool          // at the last turn of the claim loop, so that since is now
}

// newIdleness counts from a start. The second reading of what operators ask for comes first: the
// reading at the start may have failed, or be older than a pause.
func newIdleness(after time.Duration, start time.Time) idleness {
	const secondReading = presence.Every + 5*time.Second
	return idleness{after: after, since: start.Add(max(0, secondReading-after))}
}

// observeClaim takes the result of a claim. The ends of its deliveries show whether its messages
// were work.
func (i *idleness) observeClaim(r claimed, gave claimResult, now time.Time) {
	switch {
	case gave == noMessages:
		r.source.emptyAt = r.begun
	case gave == absent:
		r.source.emptyAt = r.source.due // it has no messages until then
	case len(r.leases) == 0:
		i.since = now
	}
}

// observeEnd takes the end of a delivery.
func (i *idleness) observeEnd(e ended, now time.Time) {
	if e.result != delivery.Unfit {
		i.since = now
	}
}

// over reports whether a claim from each listed queue that began at the end of the time, or
// later, found no message.
func (i *idleness) over(t *queueRotation) bool {
	end := i.since.Add(i.after)
	return !slices.ContainsFunc(t.queues, func(s *queueState) bool { return !s.dropped && s.emptyAt.Before(end) })
}

// idle reports whether the worker may end because it was idle for long enough at now.
func (c *claimer) idle(now time.Time) bool {
	if c.idleness.after == 0 {
		return false
	}
	busy := len(c.buffer) > 0 || c.claimable(now) == 0
	if busy || c.idleness.busy {
		c.idleness.since = now
	}
	c.idleness.busy = busy
	return !busy && c.slots.free == c.slots.all && len(c.inFlight.claims) == 0 && c.idleness.over(c.rotation) && c.runner.Counts().Active == 0
}

// endIdle ends the worker as SIGTERM does, because it was idle.
func (w *Worker) endIdle() {
	w.terminate(fmt.Sprintf("no job and no message for %s", w.ExitWhenIdle))
}
