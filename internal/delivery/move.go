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
// [RunnerConfig.MoveAfter].
func moves(after, interruptions int) bool { return after > 0 && interruptions >= after }

// mayMove reports whether a job that is released may be moved at all: a job on the
// on-demand queue stays there. A job whose message is another worker's is not moved, since
// that worker has it, nor is a job that was not stopped but took a break. stop is the stop
// of the job, or nil.
func mayMove(stop *job.Stop, isOnDemand bool) bool {
	return !isOnDemand && stop != nil && stop.Reason != job.Lost
}

// movePlan decides whether a job moves to the on-demand queue, and moves it.
type movePlan struct {
	msg     *message
	rec     *recorder
	verdict deadline.Verdict // whether the job will meet its deadline, before its record was released
	atClaim bool             // it moves before its handler is called
	waits   bool             // no worker claimed it: it moves, or its message is released unchanged
	moved   bool             // a message on the on-demand queue replaced this one
	barred  *bool            // whether no worker of the on-demand queue can continue from its state; nil if not known yet
}

// onRelease judges the job before its record is released, so that the record says why it
// moves.
func (p *movePlan) onRelease(ctx context.Context) {
	if p.msg.runner.Stores.OnDemand == nil || p.rec.claim == nil || p.msg.isOnDemand() {
		return
	}
	if !p.atClaim {
		p.verdict = p.judge(1)
	}
	_, why := p.reason(ctx, p.rec.claim.Record().Interruptions+1)
	p.rec.known.moveReason = &why
}

// onClaim returns an outcome if the job moves instead of being started: it lost a VM before,
// and its time does not suffice for losing another one. A job that was never started is
// started: here is a slot, and few VMs are evicted while a short job runs. So is a job whose
// last release was to move it, so that a queue that cannot be reached costs one attempt and
// no claims without work.
func (p *movePlan) onClaim(ctx context.Context) *outcome {
	if p.msg.runner.Stores.OnDemand == nil || p.msg.isOnDemand() || !p.rec.claim.Exists() || !p.msg.runner.moveRest.mayTry(time.Now()) {
		return nil
	}
	if r := p.rec.claim.Record(); r.Generation <= 1 || r.MoveReason != "" {
		return nil
	}
	verdict := p.judge(0)
	if !verdict.MovesOnClaim() || p.isBarred(ctx) {
		return nil
	}
	p.verdict, p.atClaim = verdict, true
	return &outcome{action: interrupted, reason: verdict.Why}
}

// judge judges whether the job will meet its deadline. losing is 1 if it loses its VM now.
// The time is the storage service's: the clock of a VM may be wrong. So may the clock of
// the VM that made the record, but a job did not begin before its message was put.
func (p *movePlan) judge(losing int) deadline.Verdict {
	if p.msg.runner.Changeover <= 0 {
		return deadline.Verdict{}
	}
	r, s := p.rec.claim.Record(), p.rec.snapshot()
	fraction := s.Fraction
	if fraction == 0 {
		fraction = r.Fraction
	}
	began := r.CreatedAt
	switch {
	case r.Generation <= 1:
		began = p.msg.lease.ClaimedAt
	case p.msg.lease.InsertedAt.After(began):
		began = p.msg.lease.InsertedAt
	}
	return deadline.Judge(deadline.Job{
		Now: p.msg.lease.ClaimedAt.Add(time.Since(p.msg.lease.AskedAt)), Deadline: p.msg.envelope.Deadline, Began: began,
		Estimate: p.msg.envelope.Estimate, RunTime: p.rec.runTime(), Fraction: fraction, HasState: r.HasState() || s.HasState(),
		Waited: p.waited(), Losses: max(r.Generation-1-r.FailuresTotal, 0) + losing,
	}, p.msg.runner.Changeover)
}

// waited is how long the job waited for this slot, since it was released or its last owner
// wrote its record; 0 at its first delivery.
func (p *movePlan) waited() time.Duration {
	if p.rec.claim.Record().Generation <= 1 {
		return 0
	}
	return max(p.msg.lease.AskedAt.Sub(p.rec.found.written), 0)
}

// OpenWaiting makes the delivery of a message that no worker claimed, and that
// [Runner.AtRisk] returned. It moves the job, unless the job is no longer at risk.
func (r *Runner) OpenWaiting(lease *queue.Lease) *Delivery {
	d := r.Open(lease)
	d.plan.waits = true
	return d
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
		found, ruling, err = r.Stores.Records.Lookup(ctx, checkpoint.Delivery{ID: e.ID, Kind: e.Kind, PayloadHash: e.Work(), MessageID: m.ID})
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
	if found.Generation > 0 {
		began, waited = found.CreatedAt, now.Sub(found.ModifiedAt)
		if inserted.After(began) {
			began = inserted
		}
	}
	v := deadline.Judge(deadline.Job{
		Now: now, Deadline: e.Deadline, Began: began, Estimate: e.Estimate, RunTime: found.RunTime, Fraction: found.Fraction,
		HasState: found.HasState(), Waited: waited, Losses: max(found.Generation-found.FailuresTotal, 0),
	}, r.Changeover)
	return v, v.MovesWaiting()
}

// staysWaiting returns an outcome if a job that waited is left on its queue after all, by the
// record that was found before this delivery would acquire it.
func (p *movePlan) staysWaiting(found checkpoint.Record) *outcome {
	if !p.waits {
		return nil
	}
	verdict, moves := p.judgeFound(found)
	if !moves || p.msg.runner.Stores.OnDemand == nil || p.msg.isOnDemand() {
		return &outcome{action: requeue, reason: "it was to move, and need not"}
	}
	verdict.Why = "no worker claims it; " + verdict.Why
	p.verdict, p.atClaim = verdict, true
	return nil
}

// judgeFound is judgeWaiting for the job of this delivery.
func (p *movePlan) judgeFound(found checkpoint.Record) (deadline.Verdict, bool) {
	return p.msg.runner.judgeWaiting(p.msg.envelope, found, p.msg.lease.InsertedAt, p.msg.lease.ClaimedAt.Add(time.Since(p.msg.lease.AskedAt)))
}

// movesUnmet reports whether a job moves that this worker cannot continue by the needs of its
// state: it may miss its deadline while it waits, and a worker of the on-demand queue may meet
// the needs. No search finds such a job, since its message is hidden most of the time.
func (p *movePlan) movesUnmet(ctx context.Context, found checkpoint.Record) bool {
	r := p.msg.runner
	if r.Stores.OnDemand == nil || p.msg.isOnDemand() || r.Changeover <= 0 || !r.moveRest.mayTry(time.Now()) {
		return false
	}
	verdict, moves := p.judgeFound(found)
	if !moves {
		return false
	}
	if has, ok := r.onDemandMeets(ctx, p.msg.envelope.Kind, found.StateNeeds); !ok || has == presence.HasNot {
		return false
	}
	verdict.Why = "it waits for a worker that meets the needs of its state; " + verdict.Why
	p.verdict, p.atClaim = verdict, true
	return true
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

// isBarred is barsMove for the state that a release of this job leaves. It asks once.
func (p *movePlan) isBarred(ctx context.Context) bool {
	if p.barred == nil {
		p.barred = new(p.msg.runner.barsMove(p.msg.cleanup, p.msg.envelope.Kind, p.rec.needs()))
		if *p.barred {
			p.msg.log.WarnContext(ctx, "job stays on its queue: no worker of the on-demand queue meets the needs of its state")
		}
	}
	return *p.barred
}

// moveWaiting moves a job that waited, without its handler: its record is acquired, and
// released like the record of a job that moves at its claim.
func (a *admission) moveWaiting(ctx context.Context) *outcome {
	if out := a.awaitDuplicate(ctx); out != nil {
		return out
	}
	if out := a.acq.acquire(ctx); out != nil {
		return out
	}
	return &outcome{action: interrupted, reason: a.plan.verdict.Why}
}

// reason returns why the job is moved when it is released, as a word of [Moves] and
// for people; empty if it is not. interruptions is how often it was interrupted, this time
// included, as far as that is recorded.
func (p *movePlan) reason(ctx context.Context, interruptions int) (word, why string) {
	switch {
	case p.msg.runner.Stores.OnDemand == nil || p.rec.claim == nil:
		return "", ""
	case !p.atClaim && !mayMove(job.StopOf(ctx), p.msg.isOnDemand()):
		return "", ""
	case p.verdict.MovesOnRelease():
		word, why = movedForDeadline, p.verdict.Why
	case moves(p.msg.runner.MoveAfter, interruptions):
		word, why = movedForInterruptions, fmt.Sprintf("it was interrupted %d times", interruptions)
	}
	if word == "" || p.isBarred(ctx) {
		return "", ""
	}
	return word, why
}

// move puts the job on the on-demand queue if that is where it belongs, and
// reports whether it is there, so that the old message is to be deleted. The
// record is open by now. A move that fails leaves the job where it is, to be
// moved the next time. If only the reply is lost, two messages exist; the record admits
// one.
func (p *movePlan) move(ctx context.Context) bool {
	if p.moved {
		return true
	}
	interruptions := 0
	if p.rec.claim != nil {
		interruptions = p.rec.claim.Record().Interruptions
	}
	word, why := p.reason(ctx, interruptions)
	if word == "" {
		return false
	}
	if !p.msg.runner.moveRest.mayTry(time.Now()) {
		p.msg.log.WarnContext(ctx, "job stays on its queue: moving another one to the on-demand queue has just failed", "queue",
			p.msg.lease.Queue().Name())
		return false
	}
	ctx, cancelMoves := drain.Outlive(p.msg.tries.In(ctx), drain.UntilMoves)
	defer cancelMoves()
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	if err := p.msg.runner.Stores.OnDemand.PutMoved(ctx, p.msg.envelope, 0, p.msg.runner.Stores.Payloads); err != nil {
		p.msg.runner.moveRest.failed(time.Now())
		p.msg.log.WarnContext(ctx, "job not moved to the on-demand queue; it stays on its own until it is interrupted again", "error", err)
		return false
	}
	p.moved = true
	p.msg.runner.Observer.Moved(word)
	p.msg.log.InfoContext(ctx, "job put on the on-demand queue", "queue", p.msg.runner.Stores.OnDemand.Name(), "interruptions", interruptions,
		"reason", why)
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

func (r *rest) failed(now time.Time) { r.pausedUntil.Store(new(now.Add(movePause))) }
