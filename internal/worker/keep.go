package worker

import (
	"context"
	"math"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/job"
)

// releaseRecord writes the last state, or if that does not get through in its time, only
// that the job is open.
func (d *delivery) releaseRecord(ctx context.Context, out outcome) error {
	if d.claim == nil || d.endRecorded {
		return nil // not even claimed, or a repeat
	}
	write := d.claim.Release
	if out.tookBreak {
		write = d.claim.Break
	}
	err := d.writeWithState(ctx, write)
	if err == nil {
		d.endRecorded = true
		d.reportBreaks(out)
	}
	return err
}

// writeWithState writes the last report. If its state is one that cannot be recorded,
// or cannot be sent in time, it writes the report without it: that must not keep
// the job from ending.
func (d *delivery) writeWithState(ctx context.Context, write func(context.Context, checkpoint.Snapshot) error) error {
	s, fault := d.unsaved(), tooLarge(d.latest())
	before := d.recordedState()
	if fault == nil {
		statesCtx, cancel := drain.Outlive(d.tries.In(ctx), drain.UntilStates)
		defer cancel()
		err := d.writeSnapshot(statesCtx, s, write)
		if err == nil || asConflict(err) != nil || !isUnmendable(err) && statesCtx.Err() == nil {
			return err
		}
		fault = err
	}
	err := write(d.cleanup, s.WithoutState())
	// A write of the state whose reply was lost may have taken effect all the same.
	if err == nil && s.HasState() && d.recordedState() == before {
		d.log.ErrorContext(ctx, "state left out; the checkpoint before stands", "error", fault)
		d.leftOut = true
	}
	return err
}

// recordedState is the hash of the state that the record holds, as far as is known.
func (d *delivery) recordedState() string {
	if d.claim == nil {
		return ""
	}
	return d.claim.Record().StateHash
}

// writeSnapshot writes the last report, and takes note of it if it holds a state.
func (d *delivery) writeSnapshot(ctx context.Context, s checkpoint.Snapshot, write func(context.Context, checkpoint.Snapshot) error) error {
	if !s.HasState() {
		return write(ctx, s)
	}
	return d.measureSave(func() error { return write(ctx, s) })
}

// unsaved is the last report, with its state only if that is not recorded yet.
func (d *delivery) unsaved() checkpoint.Snapshot {
	s := d.snapshot()
	if d.job == nil || !d.changed() {
		return s.WithoutState()
	}
	return s
}

// unsavedSize is how much a release has to send, in bytes. How much of a stream
// must be sent is not known before: those come last.
func (d *delivery) unsavedSize() int {
	s := d.unsaved()
	if s.Stream != nil {
		return math.MaxInt
	}
	return len(s.State)
}

// recordedSize is how much state the record holds, in bytes.
func (d *delivery) recordedSize() int64 {
	if d.claim == nil {
		return 0
	}
	return d.claim.Record().StateSize
}

func (d *delivery) latest() *job.Progress {
	if d.job == nil {
		return nil
	}
	return d.job.Latest()
}
