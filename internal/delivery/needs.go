package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/job"
)

// unmetFor is how long a job waits for a worker that meets the needs of its state before it
// is dead-lettered, if no live worker is known to meet them. The state stays: a replay waits
// again, and a replay from scratch begins without it.
const unmetFor = 24 * time.Hour

// unmetLook is how long a worker must have run to dead-letter such a job: after a pause of the
// whole fleet, other workers start too.
const unmetLook = 15 * time.Minute

// checkNeeds leaves a job to other workers if its recorded state needs another machine. It
// reads nothing of the state. A job that waited for unmetFor sets q.unmet, and the caller
// dead-letters it once it has acquired the record.
func (q *acquisition) checkNeeds(ctx context.Context, found checkpoint.Record) *outcome {
	if found.StateNeeds == "" || !found.HasState() {
		return nil
	}
	kind, id := q.msg.envelope.Kind, q.msg.envelope.ID
	handler := q.msg.runner.Kinds[kind]
	err := job.CheckNeeds(handler, found.StateNeeds)
	if err == nil {
		q.msg.runner.unlike.Found(kind, id)
		return nil
	}
	offer, _, _ := strings.Cut(found.StateNeeds, " ")
	meets, unlike := q.whoMeets(ctx, offer, job.Offer(handler))
	waited := time.Since(q.rec.found.written)
	if meets == presence.HasNot && waited >= unmetFor && time.Since(q.msg.runner.Started) >= unmetLook {
		q.unmet = fmt.Sprintf("no live worker has been known to meet the needs of its state for %s: %v; start a worker that does and "+
			"replay it, or start over with spotctl poison replay --from-scratch", unmetFor, err)
		q.msg.runner.unlike.Found(kind, id)
		return nil
	}
	delay := unmetDelay(meets, waited)
	if meets == presence.HasIt {
		delay = max(delay, q.msg.runner.deferred.next(time.Now(), unlike))
	}
	delay = q.msg.runner.Jitter.Vary(delay)
	if meets == presence.HasNot {
		q.msg.runner.unlike.Hide(kind, id, time.Now(), delay)
	} else {
		q.msg.runner.unlike.Found(kind, id)
	}
	if due, leftOut := q.msg.runner.lines.putBack.Allow(kind, time.Now()); due && meets != presence.HasIt {
		q.msg.log.WarnContext(ctx, "job waits for a worker that meets the needs of its state", "reason", err, "since", q.rec.found.written,
			"visible_in", delay, "suppressed", leftOut)
	}
	q.msg.envelope = q.msg.lease.ClearPutBack(q.msg.envelope)
	return &outcome{action: requeue, reason: err.Error(), delay: delay}
}

// whoMeets returns whether another live worker meets the needs of a state, by their first
// word, and how many do not. Where this worker offers that word too and still cannot continue,
// the word of another worker proves nothing.
func (q *acquisition) whoMeets(ctx context.Context, offer, own string) (best presence.Has, unlike int) {
	seen, err := q.msg.runner.Fleet.Sample(ctx, sampleEvery)
	if err != nil {
		q.msg.log.Log(ctx, outage.Level(err, slog.LevelWarn), "heartbeats not listed; another worker may run this kind of job", "error", err)
		return presence.MayHave, 1
	}
	best, unlike = seen.whoMeets(q.msg.envelope.Kind, q.msg.lease.Queue().Name(), offer, q.msg.runner.owner, time.Now())
	if best == presence.HasIt && own == offer {
		best = presence.HasNot
	}
	return best, unlike
}

// whoMeets is [Sample.whoHas] for the needs of a state of a kind, without one worker.
func (s Sample) whoMeets(kind, queue, offer, without string, now time.Time) (best presence.Has, unlike int) {
	for _, p := range s.Workers {
		if p.Worker == without || p.Age+now.Sub(s.at) > hasKindFor || p.State == lifecycle.Stopped.String() || !p.Takes(queue) {
			continue
		}
		meets := p.Meets(kind, offer)
		best = max(best, meets)
		if meets == presence.HasNot && p.Age <= lacksKindFor {
			unlike++
		}
	}
	return best, unlike + 1
}

// unmetDelay returns how long to hide a message for other workers: longer the longer its job
// waits. Where a worker meets the needs, it is probably busy.
func unmetDelay(meets presence.Has, waited time.Duration) time.Duration {
	if meets == presence.HasIt {
		return min(max(waited/16, minDefer), maxKindDelay)
	}
	return min(max(waited/4, minKindDelay), maxDefer)
}
