package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/text/spelling"
	"github.com/spotworker/spotworker/job"
)

const (
	// A message that waits is hidden for a quarter of the time since it was first put back,
	// minWait … maxWait, give or take a quarter: a job then waits little longer than it must, and
	// thousands that nobody can run cost fewer calls the longer they wait.
	minWait = 5 * time.Second
	maxWait = 5 * time.Minute

	// A message of a kind that another worker has is hidden for minDefer instead, short beside the
	// pause between two claims of this one, so that a free slot of the other mostly comes first.
	// deferEvery is the time between two such messages that become visible, over all workers that
	// lack the kind: 20 a second, however many wait.
	minDefer   = time.Second
	deferEvery = 50 * time.Millisecond

	// pausedLook is how long a worker waits that has only paused kinds.
	pausedLook = time.Second

	// unknownKindFor is how long a message waits whose kind no worker has before it is
	// dead-lettered: a worker that has it may start, as during an update.
	unknownKindFor = time.Hour

	// repeatAfter is how long a job that failed on this machine last is left to
	// others, while nothing shows whether the job or the machine is to blame.
	repeatAfter = 10 * time.Minute

	// unmetFor is how long a job waits for a worker that meets the needs of its state before it
	// is dead-lettered, if no worker is known to have met them in that time. The state stays: a
	// replay waits again, and a replay from scratch begins without it.
	unmetFor = 24 * time.Hour

	// unmetLook is how long a worker must have run to dead-letter such a job: after a pause of the
	// whole fleet, other workers start too.
	unmetLook = 15 * time.Minute

	// unmetSoon is how long a job whose state another worker can take is hidden for minDefer at a
	// time: each worker that cannot then costs the job one look.
	unmetSoon = 30 * time.Second

	// unmetMoves is how long such a job waits before it may move, if a worker may meet the needs.
	unmetMoves = time.Minute
)

// waitFor returns how long to hide a message that was first put back at since, or never. Both times
// are the service's.
func waitFor(since, now time.Time) time.Duration {
	if since.IsZero() {
		since = now
	}
	return min(max(now.Sub(since)/4, minWait), maxWait)
}

// spacing spaces out messages of kinds that other workers have: each becomes visible after
// minDefer, and not before the messages that were deferred earlier.
type spacing struct {
	mu   sync.Mutex
	free time.Time // the next time that is not taken
}

// next returns how long to hide a message, given how many workers lack its kind and
// space out their share.
func (s *spacing) next(now time.Time, workers int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := min(max(s.free.Sub(now), minDefer), maxWait)
	s.free = now.Add(wait + deferEvery*time.Duration(max(workers, 1)))
	return wait
}

// later is the outcome of a job that is not run now.
func (c *claimed) later(seen Result, reason string) *outcome {
	return &outcome{action: wait, waits: seen, reason: reason, delay: c.waitTime()}
}

func (c *claimed) waitTime() time.Duration {
	return c.env.Jitter.Vary(waitFor(c.envelope.PutBackSince, c.lease.ClaimedAt))
}

// eligible decides whether this worker runs the job now, by its kind, its record and the
// heartbeats of the fleet. It returns nil for a job that is run, and otherwise the outcome of a job
// that waits, or that moves or is dead-lettered once this delivery has acquired its record. f is
// nil before the record is read, and for a job that was never claimed.
func (c *claimed) eligible(ctx context.Context, f *found) *outcome {
	kind := c.envelope.Kind
	switch {
	case c.env.isPaused(kind):
		return c.later(Skipped, fmt.Sprintf("kind %q is paused", kind))
	case c.kind.handler == nil:
		return c.lacksKind(ctx, f)
	case f == nil || f.ruling != checkpoint.Acquire:
		return nil
	case time.Since(f.written) < repeatAfter && c.wouldRepeat(f.record, f.written):
		return c.later(Skipped, "the job failed on this machine last, and no other of its kind has succeeded here since")
	}
	if f.record.StateNeeds == "" { // as in a record without a state
		return c.leaveToSteady(f)
	}
	if unmet := job.CheckNeeds(c.kind.handler, f.record.StateNeeds); unmet != nil {
		return c.lacksMachine(ctx, f, unmet)
	}
	c.env.unlike.Found(kind, c.envelope.ID)
	return c.leaveToSteady(f)
}

// lacksKind is the outcome of a job whose kind this worker lacks. Workers may differ in kinds: it
// is left to workers that have the kind. If none has had it for an hour, the job is dead-lettered,
// unless a worker has made progress with it: then it waits, however long that takes.
func (c *claimed) lacksKind(ctx context.Context, f *found) *outcome {
	kind, queue, now := c.envelope.Kind, c.lease.Queue().Name(), time.Now()
	seen, err := c.env.Fleet.Sample(ctx, sampleEvery)
	has, lacking := presence.MayHave, 1 // how many workers lack the kind is not known
	if err != nil {
		c.logUnlisted(ctx, err)
	} else {
		has, lacking = seen.hasKind(kind, queue, now)
	}
	if has != presence.HasNot {
		c.env.lacking.Found(kind, c.envelope.ID)
		reason := "another worker has a handler for kind %q"
		if has == presence.MayHave {
			reason = "another worker may have a handler for kind %q"
		}
		return &outcome{action: wait, waits: NotRun, reason: fmt.Sprintf(reason, kind),
			delay: c.env.Jitter.Vary(c.env.deferred.next(now, lacking))}
	}
	reason := fmt.Sprintf("no worker has a handler for kind %q", kind)
	if meant := spelling.Nearest(kind, seen.kinds(c.env.Kinds)); meant != "" {
		reason += fmt.Sprintf(" (did you mean %q?)", meant)
	}
	since := c.envelope.PutBackSince
	over := !since.IsZero() && c.lease.ClaimedAt.Sub(since) >= unknownKindFor && !seen.hadKind(kind, queue, now, unknownKindFor)
	inProgress := over && f != nil && f.ruling == checkpoint.Acquire && f.record.InProgress()
	if over && !inProgress {
		c.env.lacking.Found(kind, c.envelope.ID)
		return &outcome{action: poison, reason: reason + ", for " + unknownKindFor.String()}
	}
	if inProgress {
		c.log.WarnContext(ctx, "job in progress waits for a worker with its kind: start one, or purge the job's message", "fraction",
			f.record.Fraction)
		reason += "; the job is in progress"
	}
	out := c.later(NotRun, reason)
	c.env.lacking.Hide(kind, c.envelope.ID, now, out.delay)
	return out
}

// logUnlisted logs that heartbeats could not be listed.
func (c *claimed) logUnlisted(ctx context.Context, err error) {
	c.log.Log(ctx, outage.Level(err, slog.LevelWarn), "heartbeats not listed; another worker may run this kind of job", "error", err)
}

// lacksMachine is the outcome of a job whose recorded state needs another machine: it is left to
// workers that meet the needs. It reads nothing of the state. The job moves if it may miss its
// deadline meanwhile, and is dead-lettered if it has waited for unmetFor.
func (c *claimed) lacksMachine(ctx context.Context, f *found, unmet error) *outcome {
	kind, id := c.envelope.Kind, c.envelope.ID
	meets, lately := c.whoMeets(ctx, f.record.StateNeeds, job.Offer(c.kind.handler))
	waited := time.Since(f.written)
	if meets == presence.HasNot || waited >= unmetMoves {
		if moves := c.movesUnmet(ctx, f.record); moves != nil {
			c.env.unlike.Found(kind, id)
			return moves
		}
	}
	if meets == presence.HasNot && !lately && waited >= unmetFor && c.env.uptime() >= unmetLook {
		c.env.unlike.Found(kind, id)
		return &outcome{action: poison, reason: fmt.Sprintf("no live worker of queue %s has been known to meet the needs of its state for %s: "+
			"%v; start a worker that does and replay it, or start over with spotctl poison replay --from-scratch", c.lease.Queue().Name(),
			unmetFor, unmet)}
	}
	out := c.later(Unfit, unmet.Error())
	if since := c.envelope.PutBackSince; meets == presence.HasIt && (since.IsZero() || c.lease.ClaimedAt.Sub(since) < unmetSoon) {
		out.delay = c.env.Jitter.Vary(minDefer)
	}
	if meets == presence.HasNot {
		c.env.unlike.Hide(kind, id, time.Now(), out.delay)
	} else {
		c.env.unlike.Found(kind, id)
	}
	if due, leftOut := c.env.lines.putBack.Allow(kind, time.Now()); due && meets != presence.HasIt {
		c.log.WarnContext(ctx, "job waits for a worker that meets the needs of its state", "reason", unmet, "since", f.written,
			"visible_in", out.delay, "suppressed", leftOut)
	}
	return out
}

// whoMeets returns whether another live worker meets the needs of a state, by their first word, and
// whether one did within unmetFor. Where this worker's offer meets them too and it still cannot
// continue, the offer of another worker proves nothing.
func (c *claimed) whoMeets(ctx context.Context, needs, own string) (meets presence.Has, lately bool) {
	seen, err := c.env.Fleet.Sample(ctx, sampleEvery)
	if err != nil {
		c.logUnlisted(ctx, err)
		return presence.MayHave, false
	}
	kind, queue, now := c.envelope.Kind, c.lease.Queue().Name(), time.Now()
	meets = seen.meets(kind, queue, needs, c.env.owner, now)
	if !presence.OfferMeets(own, needs) {
		return meets, seen.met(kind, queue, needs, c.env.owner, now, unmetFor)
	}
	if meets == presence.HasIt {
		meets = presence.HasNot
	}
	return meets, false
}

// leaveToSteady leaves a job that may have killed its workers at once to a worker that has run for
// longer.
func (c *claimed) leaveToSteady(f *found) *outcome {
	charged, early := checkpoint.UncleanExits(f.record, c.ref())
	if early < steadyAfter || c.env.uptime() >= steadyFor || exhausted(charged, early) != "" {
		return nil
	}
	out := c.later(NotRun, "the job is in quarantine and this worker has only just started")
	if c.envelope.PutBackSince.IsZero() {
		c.log.Info("job left to a worker that has run for longer: the last workers died soon after they started it", "early_exits", early,
			"retry_in", out.delay)
	}
	return out
}

// wouldRepeat reports whether a failure of the job with the record that was found would be a
// repeat, for which a sick machine may be the only reason: the job failed here last, no other job of
// its kind succeeded here since, and other machines could run it from its state.
func (c *claimed) wouldRepeat(found checkpoint.Record, written time.Time) bool {
	const precision = time.Second // of the service's times
	return found.Failures > 0 && found.FailedBy == c.env.machine &&
		!c.env.breakers.HasWorkedSince(c.envelope.Kind, written.Add(precision)) &&
		!c.seeOthers(found.StateNeeds).none()
}
