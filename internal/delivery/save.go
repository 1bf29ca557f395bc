package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/ledger"
	"github.com/spotworker/spotworker/internal/outage"
	"github.com/spotworker/spotworker/job"
)

// writeDue makes the write that is due. over is true when the job must end: another
// delivery owns its record, or its state cannot be recorded.
func (d *Delivery) writeDue(ctx context.Context, due checkpoint.Due) (end ended, over bool) {
	latest := d.job.Latest()
	if fault := tooLarge(latest); fault != nil {
		d.stopJob(job.Faulty, fault)
		return ended{fault: fault}, true
	}
	work := ctx
	ctx, cancel := drain.Outlive(work, drain.UntilHandlers)
	defer cancel()
	begun := time.Now()
	err := d.writeRecord(d.tries.In(ctx), due, latest)
	d.writeFailed = err != nil
	switch conflict := asConflict(err); {
	case conflict != nil:
		return d.stopForConflict(ctx, conflict), true
	case errors.Is(err, checkpoint.ErrTooLarge):
		d.stopJob(job.Faulty, err)
		return ended{fault: err}, true
	case errors.Is(err, checkpoint.ErrReading):
		d.log.DebugContext(ctx, "checkpoint put off: the handler is still reading the one before")
		end, over = d.writeDue(ctx, checkpoint.DueTouch) // so that a long read does not look like an unclean exit
		d.writeFailed = true
		return end, over
	case job.IsPermanent(err): // of the job's outputs
		d.stopJob(job.Faulty, err)
		return ended{fault: err}, true
	case err != nil:
		d.log.Log(ctx, outage.Level(err, slog.LevelWarn), "checkpoint not saved; the one before stands", "error", err)
	case due == checkpoint.DueSave:
		d.saved = latest
		d.watch.Saved()
		took := time.Since(begun)
		d.cost.Add(took)
		next := d.runner.policy.IntervalFor(d.situation(begun, begun))
		d.log.DebugContext(ctx, "checkpoint saved", "bytes", d.claim.Record().StateSize, "fraction", fractionOf(latest, 0), "took", took, "interval", next)
	}
	if err == nil {
		d.writeLog(work)
	}
	return ended{}, false
}

// writeRecord makes a write of the kind that is due.
func (d *Delivery) writeRecord(ctx context.Context, due checkpoint.Due, latest *job.Progress) error {
	if due == checkpoint.DueTouch {
		return d.claim.Touch(ctx, d.snapshotOf(latest))
	}
	s := d.snapshotOf(latest)
	if !d.stateChanged() {
		s = s.WithoutState() // there are new outputs
	}
	s, release := s.Held() // sending outputs takes time, in which the handler reports again
	defer release()
	if d.needsUncharge(s) {
		if err := d.claim.Touch(ctx, s.WithoutState()); err != nil {
			return err
		}
	}
	return d.measureSave(func() error {
		if err := d.prepareOutputs(ctx); err != nil {
			return err
		}
		return d.claim.Save(ctx, s)
	})
}

// saveStream saves the streamed state of a job that failed, before its failure is
// counted: only then it is known whether the job made progress. It returns end with
// the conflict or fault that the save met.
func (d *Delivery) saveStream(ctx context.Context, end ended) ended {
	latest, s := d.job.Latest(), d.unsaved()
	if s.Stream == nil {
		return end
	}
	ctx, cancel := drain.Outlive(d.tries.In(ctx), drain.UntilStates)
	defer cancel()
	err := d.retry(ctx, "save the state of a failed job", func() error {
		return d.measureSave(func() error {
			if err := d.prepareOutputs(ctx); err != nil {
				return err
			}
			return d.claim.Save(ctx, s)
		})
	})
	switch conflict := asConflict(err); {
	case err == nil:
		d.saved = latest
		d.watch.Saved()
	case conflict != nil:
		end.conflict = conflict
	case errors.Is(err, checkpoint.ErrTooLarge), job.IsPermanent(err):
		end.fault = err
	default:
		d.log.Log(ctx, outage.Level(err, slog.LevelWarn), "state of a failed job not saved; the one before stands", "error", err)
	}
	return end
}

// situation is this job as the checkpoint policy sees it.
func (d *Delivery) situation(since, tried time.Time) checkpoint.Situation {
	return checkpoint.Situation{
		Since: since, Written: d.claim.Exists(), WrittenAt: tried, Failed: d.writeFailed, Changed: d.changed(),
		Cost: d.cost.Mean(), Losses: d.runner.losses.Losses(), Unwarned: d.runner.losses.Unwarned(time.Now()) || d.runner.departure.Advised(),
		Unproven: d.claim.UncleanExits() > 0,
	}
}

// changed reports whether the last reported state, or an output that was sent, is not
// recorded yet.
func (d *Delivery) changed() bool { return d.stateChanged() || d.outputsChanged() }

// stateChanged reports whether the last reported state is not recorded yet.
func (d *Delivery) stateChanged() bool {
	latest := d.job.Latest()
	return latest.HasState() && !latest.SameState(d.saved)
}

// tooLarge returns an error for a state that is too large to record.
func tooLarge(p *job.Progress) error {
	if p != nil && len(p.State) > job.MaxState {
		return fmt.Errorf("state has %d bytes; at most %d are allowed in one piece: report it as a stream", len(p.State), job.MaxState)
	}
	return nil
}

// snapshot is the last report as the record takes it.
func (d *Delivery) snapshot() checkpoint.Snapshot {
	if d.job == nil {
		return checkpoint.Snapshot{}
	}
	return d.snapshotOf(d.job.Latest())
}

func (d *Delivery) snapshotOf(p *job.Progress) checkpoint.Snapshot {
	if p == nil {
		return checkpoint.Snapshot{}
	}
	s := checkpoint.Snapshot{State: p.State, Stream: p.Stream, Version: p.Version, Fraction: p.Fraction, Text: p.Text}
	if d.watch != nil {
		s.At = d.watch.ReportedAt(p)
	}
	return s
}

// spent is what this delivery has cost so far, for the ledger in the record.
func (d *Delivery) spent(ctx context.Context) ledger.Delivery {
	d.accountedAt.Store(int64(time.Since(d.begun)))
	s := ledger.Delivery{Slot: time.Since(d.begun), End: d.runner.ends.mean()}
	if d.watch != nil {
		s.Handler = d.watch.Elapsed()
	}
	stop := job.StopOf(ctx)
	s.Evicted = stop != nil && stop.Reason == job.Evicted
	return s
}

// nextWrite is the time within which the record will be written again, as far as the
// handler reports as it did before.
func (d *Delivery) nextWrite() time.Duration {
	now := d.situation(time.Now(), time.Now())
	now.Written, now.Failed = true, false // after the write to come
	if d.latest().HasState() {
		now.Unproven = false
	}
	silent := time.Duration(0)
	if !d.latest().HasState() && !d.restored.HasState() {
		silent = d.watch.Elapsed()
	}
	return max(d.runner.policy.Expected(now, silent), d.watch.LongestSilence())
}

// takeover describes the delivery to the record that it acquires: what it found of the
// owner before, and when it will write again.
func (d *Delivery) takeover(found checkpoint.Record) checkpoint.Delivery {
	ref := d.ref()
	ref.NextWrite = d.runner.policy.Expected(checkpoint.Situation{
		Written: true, Losses: d.runner.losses.Losses(), Unproven: found.UncleanExits() > 0 || found.Status == checkpoint.Running && !found.Progressed,
	}, 0)
	if found.MessageID == ref.MessageID {
		visibility, renewEvery := d.account.renewals.Visibility()
		ref.Takeover = ledger.Takeover{Claimed: d.lease.AskedAt.Sub(d.recordWritten), Visibility: visibility, RenewEvery: renewEvery}
	}
	return ref
}

// average is a moving average of durations. The zero value is ready to use.
type average struct {
	mu    sync.Mutex
	count int
	value time.Duration
}

// add adds a duration. None is left out, however long it was: the averages that are used
// then add up to what was added.
func (a *average) add(took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count = min(a.count+1, 16)
	a.value += (took - a.value) / time.Duration(a.count)
}

func (a *average) mean() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.value
}

// accountEnd adds what the end of the delivery took, from the last write on, for the
// ledgers of later jobs: a record cannot say how long its own last write took.
func (d *Delivery) accountEnd() {
	if at := d.accountedAt.Load(); at > 0 && d.claim != nil && d.claim.Record().Status != checkpoint.Running {
		d.runner.ends.add(time.Since(d.begun) - time.Duration(at))
	}
}

// releaseRecord writes that the job is open, with its last state if that can be sent in
// time.
func (d *Delivery) releaseRecord(ctx context.Context, out outcome) error {
	if d.claim == nil || d.endRecorded {
		return nil // no record was acquired, or this is a repeat
	}
	write := d.claim.Release
	if out.tookBreak {
		write = d.claim.Break
	}
	err := d.writeWithState(ctx, true, write)
	if err == nil {
		d.endRecorded = true
		d.reportBreaks(out)
	}
	return err
}

// writeWithState makes a last write with the last report. If the state cannot be
// recorded, or cannot be sent in time, it writes the report without it: a state must
// not keep the job from ending. The outputs that a state relies on are sent before it, and
// withOutputs says that they are sent even if there is no new state.
func (d *Delivery) writeWithState(ctx context.Context, withOutputs bool, write func(context.Context, checkpoint.Snapshot) error) error {
	s, fault := d.unsaved(), tooLarge(d.latest())
	before := d.recordedState()
	if fault == nil {
		statesCtx, cancel := drain.Outlive(d.tries.In(ctx), drain.UntilStates)
		defer cancel()
		err := error(nil)
		if withOutputs || s.HasState() {
			err = d.prepareOutputs(statesCtx)
		}
		if err == nil {
			err = d.writeSnapshot(statesCtx, s, write)
		}
		mayRepeat := isRetryable(err) && !errors.Is(err, errNotSent) && statesCtx.Err() == nil
		if err == nil || asConflict(err) != nil || mayRepeat {
			return err
		}
		fault = err
	}
	err := write(d.cleanup, s.WithoutState())
	// A write of the state whose reply was lost may have taken effect all the same.
	if err == nil && s.HasState() && d.recordedState() == before {
		d.log.ErrorContext(ctx, "last state not saved in time; the job resumes from the checkpoint before", "error", fault)
		d.leftOut = true
	}
	return err
}

// recordedState is the hash of the state in the record, as far as this delivery knows.
func (d *Delivery) recordedState() string {
	if d.claim == nil {
		return ""
	}
	return d.claim.Record().StateHash
}

// writeSnapshot makes a write, and measures it if it holds a state.
func (d *Delivery) writeSnapshot(ctx context.Context, s checkpoint.Snapshot, write func(context.Context, checkpoint.Snapshot) error) error {
	if !s.HasState() {
		return write(ctx, s)
	}
	return d.measureSave(func() error { return write(ctx, s) })
}

// unsaved is the last report, with its state only if that is not recorded yet.
func (d *Delivery) unsaved() checkpoint.Snapshot {
	s := d.snapshot()
	if d.job == nil || !d.stateChanged() {
		return s.WithoutState()
	}
	return s
}

// unsavedSize is how much a release has to send, in bytes. For a stream that is not
// known in advance: streams come last.
func (d *Delivery) unsavedSize() int {
	s := d.unsaved()
	if s.Stream != nil {
		return math.MaxInt
	}
	return len(s.State)
}

// recordedSize is the size of the state in the record, in bytes.
func (d *Delivery) recordedSize() int64 {
	if d.claim == nil {
		return 0
	}
	return d.claim.Record().StateSize
}

// latest is the last report, or nil.
func (d *Delivery) latest() *job.Progress {
	if d.job == nil {
		return nil
	}
	return d.job.Latest()
}

// measureSave makes a write that records a state, and reports its result.
func (d *Delivery) measureSave(write func() error) error {
	begun, step := time.Now(), d.span.Step("checkpoint")
	err := write()
	if step != nil {
		step.Count("spotworker.checkpoint.bytes", d.recordedSize())
		step.End(err)
	}
	result := savedWell
	switch {
	case asConflict(err) != nil:
		result = savedFenced
	case err != nil:
		result = savedFailed
	}
	d.runner.observer.Saved(result, d.recordedSize(), time.Since(begun))
	return err
}
