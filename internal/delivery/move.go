package delivery

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/deadline"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/job"
)

const (
	// moveTimeout bounds the put of a moved job, so that a drain that cannot move it
	// still has the time to release it.
	moveTimeout = time.Second

	// movePause is how long jobs are only released after a move that failed: in a
	// drain of many, a queue that does not answer costs the first ones moveTimeout
	// and the others nothing.
	movePause = 30 * time.Second

	// parallelLookups is how many records of jobs that wait are read at once.
	parallelLookups = 4
)

// moves reports whether a job that is released is moved to VMs of regular priority
// (Priority Swap) because it was interrupted often enough, this time included. after is
// [Settings.MoveAfter].
func moves(after, interruptions int) bool { return after > 0 && interruptions >= after }

// mayMove reports whether a job that is released may be moved at all: a job on the
// on-demand queue stays there. A job whose message is another worker's is not moved, since
// that worker has it, nor is a job that was not stopped but took a break. stop is the stop
// of the job, or nil.
func mayMove(stop *job.Stop, isOnDemand bool) bool {
	return !isOnDemand && stop != nil && stop.Reason != job.Lost
}

// mayMoveWaiting reports whether the job of a message may have to move while it waits: it
// has a deadline ahead, and this worker would run its kind.
func (r *Runner) mayMoveWaiting(e queue.Envelope, now time.Time) bool {
	return e.Deadline.After(now) && r.Kinds[e.Kind] != nil && !r.isPaused(e.Kind)
}

// MayWait reports whether some messages, as seen on a queue, are of jobs that may have to move
// while they wait.
func (r *Runner) MayWait(seen []queue.Peeked) bool {
	return slices.ContainsFunc(seen, func(m queue.Peeked) bool {
		e, err := queue.Decode(m.Text)
		return err == nil && r.mayMoveWaiting(e, m.SeenAt)
	})
}

// AtRisk returns the messages whose jobs should move to the on-demand queue, out of some that
// no worker claims. It reads the record of each job that may have one.
func (r *Runner) AtRisk(ctx context.Context, waiting []queue.Peeked) (found []queue.Peeked, err error) {
	if r.Stores.OnDemand == nil || !r.moveRest.mayTry(time.Now()) {
		return nil, nil
	}
	atRisk := make([]bool, len(waiting))
	var group errgroup.Group
	group.SetLimit(parallelLookups)
	for i, m := range waiting {
		e, err := queue.Decode(m.Text)
		if err != nil || !r.mayMoveWaiting(e, m.SeenAt) {
			continue
		}
		group.Go(func() (err error) {
			atRisk[i], err = r.isAtRisk(ctx, m, e)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, m := range waiting {
		if atRisk[i] {
			found = append(found, m)
		}
	}
	return found, nil
}

// isAtRisk judges the job of a message that no worker claims. A generated id that no worker
// has claimed has no record.
func (r *Runner) isAtRisk(ctx context.Context, m queue.Peeked, e queue.Envelope) (bool, error) {
	var found checkpoint.Record
	if m.Deliveries > 0 || e.Resume || e.ChosenID {
		var ruling checkpoint.Ruling
		var err error
		found, ruling, err = r.Stores.Records.Lookup(ctx, checkpoint.Delivery{ID: e.ID, Kind: e.Kind, PayloadHash: e.Work(), MessageID: m.ID,
			Again: e.Again})
		if err != nil || ruling != checkpoint.Create && ruling != checkpoint.Acquire {
			return false, err
		}
	}
	_, moves := r.judgeWaiting(e, found, m.InsertedAt, m.SeenAt)
	return moves && !r.barsMove(ctx, e.Kind, found.StateNeeds), nil
}

// judgeWaiting judges a job that has no worker at now: found is its record, if there is one.
// A job whose last release was to move it stays for a changeover, since the on-demand queue may
// have it.
func (r *Runner) judgeWaiting(e queue.Envelope, found checkpoint.Record, inserted, now time.Time) (deadline.Verdict, bool) {
	if found.MoveReason != "" && now.Sub(found.ModifiedAt) < r.Changeover {
		return deadline.Verdict{}, false
	}
	began, waited := now, time.Duration(0)
	if found.Claims() > 0 {
		began, waited = found.CreatedAt, now.Sub(found.ModifiedAt)
		if inserted.After(began) {
			began = inserted
		}
	}
	v := deadline.Judge(deadline.Job{
		Now: now, Deadline: e.Deadline, Began: began, Estimate: e.Estimate, RunTime: found.RunTime, Fraction: found.Fraction,
		HasState: found.HasState(), Waited: waited, Losses: max(found.Claims()-found.FailuresTotal, 0),
	}, r.Changeover)
	return v, v.MovesWaiting()
}

// movesWaiting returns the outcome of a job that no worker claims, by the record that was found;
// nil if it is left on its queue after all.
func (c *claimed) movesWaiting(found checkpoint.Record) *outcome {
	verdict, moves := c.judgeFound(found)
	if !moves || c.env.Stores.OnDemand == nil || c.isOnDemand() {
		return nil
	}
	return movesBefore("no worker claims it; ", verdict)
}

// movesBefore is the outcome of a job that moves before its handler is called.
func movesBefore(why string, v deadline.Verdict) *outcome {
	v.Why = why + v.Why
	return &outcome{action: interrupted, reason: v.Why, moves: &v}
}

// judgeFound is judgeWaiting for the job of this delivery.
func (c *claimed) judgeFound(found checkpoint.Record) (deadline.Verdict, bool) {
	return c.env.judgeWaiting(c.envelope, found, c.lease.InsertedAt, c.lease.ClaimedAt.Add(time.Since(c.lease.AskedAt)))
}

// movesUnmet returns the outcome of a job that this worker cannot continue by the needs of its
// state, and that moves: it may miss its deadline while it waits, and a worker of the on-demand
// queue may meet the needs. It is nil for a job that stays. No search finds such a job, since its
// message is hidden most of the time.
func (c *claimed) movesUnmet(ctx context.Context, found checkpoint.Record) *outcome {
	r := c.env
	if r.Stores.OnDemand == nil || c.isOnDemand() || r.Changeover <= 0 || !r.moveRest.mayTry(time.Now()) {
		return nil
	}
	verdict, moves := c.judgeFound(found)
	if !moves {
		return nil
	}
	if has, ok := r.onDemandMeets(ctx, c.envelope.Kind, found.StateNeeds); !ok || has == presence.HasNot {
		return nil
	}
	return movesBefore("it waits for a worker that meets the needs of its state; ", verdict)
}

const (
	// onDemandEvery is how old a sample may be to show the workers of the on-demand queue, and
	// onDemandTimeout bounds its listing.
	onDemandEvery   = 2 * time.Minute
	onDemandTimeout = time.Second
)

// onDemandMeets returns whether a worker of the on-demand queue can continue from a state of the
// kind, by the needs of the state. ok is false if that is not known.
func (r *Runner) onDemandMeets(ctx context.Context, kind, needs string) (has presence.Has, ok bool) {
	if !r.listRest.mayTry(time.Now()) {
		return presence.MayHave, false
	}
	ctx, cancel := context.WithTimeout(ctx, onDemandTimeout)
	defer cancel()
	seen, err := r.Fleet.Sample(ctx, onDemandEvery)
	if err != nil {
		r.listRest.failed(time.Now())
		return presence.MayHave, false
	}
	return seen.outlook(kind, r.Stores.OnDemand.Name(), needs, time.Now())
}

// barsMove reports whether a job would wait in vain on the on-demand queue: none of its workers
// meets the needs of the state, as far as their heartbeats show. Without needs it makes no call.
func (r *Runner) barsMove(ctx context.Context, kind, needs string) bool {
	if needs == "" {
		return false
	}
	has, ok := r.onDemandMeets(ctx, kind, needs)
	return ok && has == presence.HasNot
}

// movesOnClaim returns an outcome if the job moves instead of being started: it lost a VM before,
// and its time does not suffice for losing another one. A job that was never started is
// started: here is a slot, and few VMs are evicted while a short job runs. So is a job whose
// last release was to move it, so that a queue that cannot be reached costs one attempt and
// no claims without work.
func (o *owned) movesOnClaim(ctx context.Context) *outcome {
	if o.env.Stores.OnDemand == nil || o.isOnDemand() || !o.claim.Exists() || !o.env.moveRest.mayTry(time.Now()) {
		return nil
	}
	r := o.claim.Record()
	if r.Claims() <= 1 || r.MoveReason != "" {
		return nil
	}
	verdict := o.judge(0, checkpoint.Snapshot{}, o.claim.EarlierRunTime())
	if !verdict.MovesOnClaim() || o.isBarred(ctx, needsOf(checkpoint.Snapshot{}, r)) {
		return nil
	}
	return o.ends(movesBefore("", verdict))
}

// judge judges whether the job will meet its deadline, by its last report and its run time. losing
// is 1 if it loses its VM now. The time is the storage service's: the clock of a VM may be wrong. So
// may the clock of the VM that made the record, but a job did not begin before its message was put.
func (o *owned) judge(losing int, last checkpoint.Snapshot, ran time.Duration) deadline.Verdict {
	if o.env.Changeover <= 0 {
		return deadline.Verdict{}
	}
	r := o.claim.Record()
	fraction := last.Fraction
	if fraction == 0 {
		fraction = r.Fraction
	}
	began, waited := r.CreatedAt, max(o.lease.AskedAt.Sub(o.written), 0)
	switch {
	case r.Claims() <= 1:
		began, waited = o.lease.ClaimedAt, 0 // it is the first delivery
	case o.lease.InsertedAt.After(began):
		began = o.lease.InsertedAt
	}
	return deadline.Judge(deadline.Job{
		Now: o.lease.ClaimedAt.Add(time.Since(o.lease.AskedAt)), Deadline: o.envelope.Deadline, Began: began,
		Estimate: o.envelope.Estimate, RunTime: ran, Fraction: fraction, HasState: r.HasState() || last.HasState(),
		Waited: waited, Losses: max(r.Claims()-1-r.FailuresTotal, 0) + losing,
	}, o.env.Changeover)
}

// needsOf are the needs of the state that a release leaves: of the last report, or of the record.
func needsOf(last checkpoint.Snapshot, r checkpoint.Record) string {
	switch {
	case last.HasState():
		return last.Needs
	case r.HasState():
		return r.StateNeeds
	}
	return ""
}

// isBarred reports whether the job would wait in vain on the on-demand queue.
func (c *claimed) isBarred(ctx context.Context, needs string) bool {
	barred := c.env.barsMove(c.cleanup, c.envelope.Kind, needs)
	if barred {
		c.log.WarnContext(ctx, "job stays on its queue: no worker of the on-demand queue meets the needs of its state")
	}
	return barred
}

// judgeMove judges the job before its record is released, so that the record says why it moves.
func (s *settlement) judgeMove(ctx context.Context, out *outcome) {
	if s.env.Stores.OnDemand == nil || s.own == nil || s.isOnDemand() {
		return
	}
	if out.moves != nil {
		s.verdict = *out.moves
	} else {
		s.verdict = s.own.judge(1, s.run.snapshot(), s.runTime())
	}
	_, why := s.whyMove(ctx, out, s.own.claim.Record().Interruptions+1)
	s.moveReason = &why
}

// whyMove returns why the job is moved when it is released, as a word of [observe.Moves] and
// for people; empty if it is not. interruptions is how often it was interrupted, this time
// included, as far as that is recorded.
func (s *settlement) whyMove(ctx context.Context, out *outcome, interruptions int) (word, why string) {
	switch {
	case s.env.Stores.OnDemand == nil || s.own == nil:
		return "", ""
	case out.moves == nil && !mayMove(job.StopOf(ctx), s.isOnDemand()):
		return "", ""
	case s.verdict.MovesOnRelease():
		word, why = observe.MovedForDeadline, s.verdict.Why
	case moves(s.env.MoveAfter, interruptions):
		word, why = observe.MovedForInterruptions, fmt.Sprintf("it was interrupted %d times", interruptions)
	default:
		return "", ""
	}
	if s.barred == nil { // it asks once
		s.barred = new(s.isBarred(ctx, needsOf(s.run.snapshot(), s.own.claim.Record())))
	}
	if *s.barred {
		return "", ""
	}
	return word, why
}

// move puts the job on the queue where it belongs, the on-demand queue or the queue First, and
// reports whether it is there, so that the old message is to be deleted. The record is open by now. A
// move that fails leaves the job where it is, to be moved the next time. If only the reply is lost,
// two messages exist; the record admits one.
func (s *settlement) move(ctx context.Context, out *outcome) bool {
	if s.movedTo != nil || s.own == nil {
		return s.movedTo != nil
	}
	interruptions := s.own.claim.Record().Interruptions
	word, why := s.whyMove(ctx, out, interruptions)
	stop := job.StopOf(ctx)
	ctx, cancel := drain.Outlive(s.tries.In(ctx), drain.UntilMoves)
	defer cancel()
	if word == "" {
		return s.moveFirst(ctx, stop)
	}
	if !s.env.moveRest.mayTry(time.Now()) {
		s.log.WarnContext(ctx, "job stays on its queue: moving another one to the on-demand queue has just failed", "queue",
			s.lease.Queue().Name())
		return false
	}
	if !s.putOn(ctx, s.env.Stores.OnDemand, &s.env.moveRest) {
		return false
	}
	s.env.Observe(observe.Moved{Reason: word})
	s.log.InfoContext(ctx, "job put on the on-demand queue", "queue", s.env.Stores.OnDemand.Name(), "interruptions", interruptions,
		"reason", why)
	return true
}

// putOn puts a message on another queue that replaces the job's, and reports whether it did. If it
// did not, moves there pause.
func (s *settlement) putOn(ctx context.Context, to *queue.Queue, moves *rest) bool {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	if err := to.PutMoved(ctx, s.envelope, 0, s.env.Stores.Payloads); err != nil {
		moves.failed(time.Now())
		s.log.WarnContext(ctx, "job not moved to another queue; it stays on its own until it is interrupted again", "queue", to.Name(),
			"error", err)
		return false
	}
	s.movedTo = to
	return true
}

// rest pauses moves after a move that failed, or listings of heartbeats for moves after one that
// failed: a drain of many jobs has no time to wait for each.
type rest struct {
	pausedUntil atomic.Pointer[time.Time] // nothing is tried before; nil before the first failure
}

// mayTry compares by the monotonic clock, as long as now has its reading.
func (r *rest) mayTry(now time.Time) bool {
	until := r.pausedUntil.Load()
	return until == nil || !now.Before(*until)
}

func (r *rest) failed(now time.Time) { r.pause(now.Add(movePause)) }

func (r *rest) pause(until time.Time) { r.pausedUntil.Store(&until) }
