package delivery

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/deadline"
	"github.com/spotworker/spotworker/internal/drain"
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
)

// moves reports whether a job that is released is moved to VMs of regular priority
// (Priority Swap) because it was interrupted often enough, this time included. after is
// [Config.MoveAfter].
func moves(after, interruptions int) bool { return after > 0 && interruptions >= after }

// mayMove reports whether a job that is released may be moved at all: one that is on the
// on-demand queue stays there. A job whose message is another worker's is not moved, since
// that worker has it, nor one that was not stopped but took a break. stop is what stopped
// the job, or nil.
func mayMove(stop *job.Stop, isOnDemand bool) bool {
	return !isOnDemand && stop != nil && stop.Reason != job.Lost
}

// movePlan is what a release does about the on-demand queue.
type movePlan struct {
	verdict deadline.Verdict // whether the job will meet its deadline, before its record was released
	atClaim bool             // it moves before its handler is called
}

// planMove judges the job before its record is released, so that the record says why it
// moves.
func (d *Delivery) planMove(ctx context.Context) {
	if d.account.onDemand == nil || d.claim == nil || d.isOnDemand() {
		return
	}
	if !d.plan.atClaim {
		d.plan.verdict = d.judge(1)
	}
	_, why := d.moveReason(ctx, d.claim.Record().Interruptions+1)
	d.claim.MovesFor(why)
}

// moveAtClaim reports whether the job moves instead of being started: it lost a VM before,
// and its time does not suffice for losing another one. One that was never started is
// started: here is a slot, and few VMs are evicted while a short job runs. So is one whose
// last release was to move it, so that a queue that cannot be reached costs one attempt
// and no claims without work.
func (d *Delivery) moveAtClaim() (outcome, bool) {
	if d.account.onDemand == nil || d.isOnDemand() || !d.claim.Exists() || !d.account.mover.mayTry(time.Now()) {
		return outcome{}, false
	}
	if r := d.claim.Record(); r.Generation <= 1 || r.MoveReason != "" {
		return outcome{}, false
	}
	verdict := d.judge(0)
	if !verdict.MovesOnClaim() {
		return outcome{}, false
	}
	d.plan = movePlan{verdict: verdict, atClaim: true}
	return outcome{action: interrupted, reason: verdict.Why}, true
}

// judge judges whether the job will meet its deadline. losing is 1 if it loses its VM now.
// The time is the storage service's: the clock of a VM may be wrong. So may that of the VM
// which made the record, but a job did not begin before its message was put.
func (d *Delivery) judge(losing int) deadline.Verdict {
	if d.runner.changeover <= 0 {
		return deadline.Verdict{}
	}
	r, s := d.claim.Record(), d.snapshot()
	fraction := s.Fraction
	if fraction == 0 {
		fraction = r.Fraction
	}
	began := r.CreatedAt
	switch {
	case r.Generation <= 1:
		began = d.lease.ClaimedAt
	case d.lease.InsertedAt.After(began):
		began = d.lease.InsertedAt
	}
	return deadline.Judge(deadline.Job{
		Now: d.lease.ClaimedAt.Add(time.Since(d.lease.AskedAt)), Deadline: d.envelope.Deadline, Began: began,
		Estimate: d.envelope.Estimate, RunTime: d.claim.RunTime(), Fraction: fraction, HasState: r.HasState() || s.HasState(),
		Waited: d.waited(), Losses: max(r.Generation-1-r.FailuresTotal, 0) + losing,
	}, d.runner.changeover)
}

// waited is how long the job waited for this slot, since it was released or its last owner
// wrote its record; 0 at its first delivery.
func (d *Delivery) waited() time.Duration {
	if d.recordWritten.IsZero() || d.claim.Record().Generation <= 1 {
		return 0
	}
	return max(d.lease.AskedAt.Sub(d.recordWritten), 0)
}

// isOnDemand reports whether the job is on the on-demand queue already. There must be one.
func (d *Delivery) isOnDemand() bool { return d.lease.Queue().Name() == d.account.onDemand.Name() }

// moveReason returns why the job is moved when it is released, as a word of [Moves] and
// for people; empty if it is not. interruptions is how often it was interrupted, this time
// included, as far as that is recorded.
func (d *Delivery) moveReason(ctx context.Context, interruptions int) (word, why string) {
	switch {
	case d.account.onDemand == nil || d.claim == nil:
		return "", ""
	case !d.plan.atClaim && !mayMove(job.StopOf(ctx), d.isOnDemand()):
		return "", ""
	case d.plan.verdict.MovesOnRelease():
		return movedForDeadline, d.plan.verdict.Why
	case moves(d.runner.moveAfter, interruptions):
		return movedForInterruptions, fmt.Sprintf("it was interrupted %d times", interruptions)
	}
	return "", ""
}

// move puts the job on the on-demand queue if that is where it belongs, and
// reports whether it is there, so that the old message is to be deleted. The
// record is open by now. A move that fails leaves the job where it is, to be
// moved the next time; one of which only the reply was lost leaves two messages,
// of which the record lets one through.
func (d *Delivery) move(ctx context.Context) bool {
	if d.moved {
		return true
	}
	interruptions := 0
	if d.claim != nil {
		interruptions = d.claim.Record().Interruptions
	}
	word, why := d.moveReason(ctx, interruptions)
	if word == "" {
		return false
	}
	if !d.account.mover.mayTry(time.Now()) {
		d.log.WarnContext(ctx, "job stays on its queue: moving another one to the on-demand queue has just failed", "queue", d.lease.Queue().Name())
		return false
	}
	ctx, cancelMoves := drain.Outlive(d.tries.In(ctx), drain.UntilMoves)
	defer cancelMoves()
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	if err := d.account.onDemand.PutMoved(ctx, d.envelope, 0, d.account.payloads); err != nil {
		d.account.mover.failed(time.Now())
		d.log.WarnContext(ctx, "job not moved to the on-demand queue; it stays on its own until it is interrupted again", "error", err)
		return false
	}
	d.moved = true
	d.runner.observer.Moved(word)
	d.log.InfoContext(ctx, "job put on the on-demand queue", "queue", d.account.onDemand.Name(), "interruptions", interruptions, "reason", why)
	return true
}

// mover pauses moves after one that failed.
type mover struct {
	pausedUntil atomic.Pointer[time.Time] // nothing is moved before; nil before the first failure
}

// mayTry compares by the monotonic clock, as long as now has its reading.
func (m *mover) mayTry(now time.Time) bool {
	rests := m.pausedUntil.Load()
	return rests == nil || !now.Before(*rests)
}

func (m *mover) failed(now time.Time) { m.pausedUntil.Store(new(now.Add(movePause))) }
