package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/job"
)

const (
	// moveTimeout bounds the put of a moved job, so that a drain that cannot move
	// still has the time to release.
	moveTimeout = time.Second

	// movePause is how long jobs are only released after a move that failed: in a
	// drain of many, a queue that gives no answer costs the first ones moveTimeout
	// and the others nothing.
	movePause = 30 * time.Second
)

// moves says whether a job that is released goes on on VMs of regular priority
// (Priority Swap): it was interrupted often enough, this time included, and is
// not there already. A job whose message is another worker's is not moved, since
// that worker has it, nor one that was not stopped but took a break. after is
// [Config.MoveAfter], stop what stopped the job, or nil.
func moves(after, interruptions int, stop *job.Stop, isOnDemand bool) bool {
	return after > 0 && interruptions >= after && !isOnDemand && stop != nil && stop.Reason != job.Lost
}

// move puts the job on the on-demand queue if that is where it belongs, and
// reports whether it is there, so that the old message is to be deleted. The
// record is open by now. A move that fails leaves the job where it is, to be
// moved the next time; one of which only the reply was lost leaves two messages,
// of which the record lets one through.
func (d *delivery) move(ctx context.Context) bool {
	if d.moved || !d.shouldMove(ctx) {
		return d.moved
	}
	if !d.mover.mayTry(time.Now()) {
		d.log.WarnContext(ctx, "job stays on its queue: a move failed a moment ago", "queue", d.lease.Queue().Name())
		return false
	}
	ctx, cancelMoves := drain.Outlive(d.tries.In(ctx), drain.UntilMoves)
	defer cancelMoves()
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	if err := d.OnDemand.PutMoved(ctx, d.envelope, 0, d.Payloads); err != nil {
		d.mover.failed(time.Now())
		d.log.WarnContext(ctx, "job not moved to the on-demand queue; it stays on its own until it is interrupted again", "error", err)
		return false
	}
	d.moved = true
	d.log.InfoContext(ctx, "job put on the on-demand queue", "queue", d.OnDemand.Name(), "interruptions", d.claim.Record().Interruptions)
	return true
}

// releaseMessage makes the job's message visible to all after delay. One that another
// message replaced is deleted, and one that would expire, or that the service
// does not find any more, is replaced now: the record is open by then, so that
// this delivery was the owner, and without a message nobody would find the job.
func (d *delivery) releaseMessage(ctx context.Context, moved bool, delay time.Duration) error {
	if moved || d.replaced {
		return d.lease.Complete(d.cleanup)
	}
	if !d.mustReplace(ctx) {
		if err := d.lease.Release(d.cleanup, delay); err != nil || !d.lease.Gone() {
			return err
		}
	}
	if err := d.lease.Queue().PutMoved(d.cleanup, d.envelope, delay, d.Payloads); err != nil {
		return err
	}
	d.replaced = true
	if d.lease.Gone() {
		d.log.WarnContext(ctx, "message was removed or has expired; put a new one for the job")
		return nil
	}
	d.log.InfoContext(ctx, "message would expire; put a new one for the job", "expires", d.lease.ExpiresAt)
	return d.lease.Complete(d.cleanup)
}

// mustReplace reports whether the message is known to be gone, or expires. One
// that another worker has by now is that worker's to replace.
func (d *delivery) mustReplace(ctx context.Context) bool {
	stop := job.StopOf(ctx)
	return d.lease.Gone() || !d.lease.ExpiresAt.IsZero() && (stop == nil || stop.Reason != job.Lost)
}

func (d *delivery) shouldMove(ctx context.Context) bool {
	if d.OnDemand == nil || d.claim == nil {
		return false
	}
	isOnDemand := d.lease.Queue().Name() == d.OnDemand.Name()
	return moves(d.MoveAfter, d.claim.Record().Interruptions, job.StopOf(ctx), isOnDemand)
}

// mover remembers whether the on-demand queue can be reached.
type mover struct {
	pausedUntil atomic.Pointer[time.Time] // until then nothing is moved; nil before the first failure
}

// mayTry compares by the monotonic clock, as long as now has its reading.
func (m *mover) mayTry(now time.Time) bool {
	rests := m.pausedUntil.Load()
	return rests == nil || !now.Before(*rests)
}

func (m *mover) failed(now time.Time) { m.pausedUntil.Store(new(now.Add(movePause))) }
