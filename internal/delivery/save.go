package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
	"github.com/spotworker/spotworker/internal/delivery/running"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/job"
)

// smallState is the largest state, in bytes, that is saved about as fast as a
// write without one.
const smallState = 64 << 10

// recorder writes the record of a job: with its state, its outputs and its log. It knows
// the recorded state, outputs and log.
type recorder struct {
	msg     *message
	claim   *checkpoint.Claim  // nil before the record is acquired
	job     job.Control        // of nothing before it is loaded
	watch   *running.Stopwatch // of the handler; nil before it is called
	outputs *outputs.Set       // that the job has sent; nil without a container for them
	output  *joblog.Output     // the output and log lines of the job; nil if they are not kept
	found   foundRecord

	followUps putFollowUps

	restored      *job.Progress   // the state that the handler began with
	saved         *job.Progress   // the state that was recorded last, as far as this delivery knows
	startFraction float64         // the fraction done when the handler was called
	cost          checkpoint.Cost // of saving this job's state
	taking        atomic.Int64    // how long the handler needs to take a state, in nanoseconds
	handOver      atomic.Int64    // how long a hand-over takes, in nanoseconds; 0 if not known
	writeFailed   bool            // the last write failed
	accountedAt   atomic.Int64    // when the ledger was last asked for, in nanoseconds from begun; 0 for never
	known         knownFacts
}

// knownFacts are facts of the next writes of the record that this delivery has found out.
type knownFacts struct {
	inputs     string             // the hash of the resolved inputs; empty before, and for a new claim
	failure    checkpoint.Failure // the machine of a failure, and whether it repeats the last one
	moveReason *string            // why the release moves the job, empty if it does not; nil before that is known
	charged    bool               // the record's Charge when the handler was called
}

// foundRecord is the record as this delivery found it.
type foundRecord struct {
	written time.Time // when it was last written, by the local clock
	open    bool
}

// writeRecord makes a write of the kind that is due.
func (r *recorder) writeRecord(ctx context.Context, due checkpoint.Due, latest *job.Progress) error {
	if due == checkpoint.DueTouch {
		return r.claim.Touch(ctx, r.snapshotOf(latest))
	}
	s := r.snapshotOf(latest)
	if !r.stateChanged() {
		s = s.WithoutState() // there are new outputs
	}
	s, release := s.Held() // sending outputs takes time, in which the handler reports again
	defer release()
	if r.needsUncharge(s) {
		if err := r.claim.Touch(ctx, s.WithoutState()); err != nil {
			return err
		}
	}
	return r.measureSave(func() error {
		if err := r.prepareOutputs(ctx); err != nil {
			return err
		}
		return r.claim.Save(ctx, s)
	})
}

// saveStream saves the streamed state of a job that failed, before its failure is
// counted: only then it is known whether the job made progress. It adds the conflict or
// fault of the save to end.
func (r *recorder) saveStream(ctx context.Context, end *runEnd) {
	latest, s := r.job.Latest(), r.unsaved()
	if s.Stream == nil {
		return
	}
	ctx, cancel := drain.Outlive(r.msg.tries.In(ctx), drain.UntilStates)
	defer cancel()
	err := r.msg.retry(ctx, "save the state of a failed job", func() error {
		return r.measureSave(func() error {
			if err := r.prepareOutputs(ctx); err != nil {
				return err
			}
			return r.claim.Save(ctx, s)
		})
	})
	switch conflict := asConflict(err); {
	case err == nil:
		r.saved = latest
		r.watch.Saved()
	case conflict != nil:
		end.conflict = conflict
	case errors.Is(err, checkpoint.ErrTooLarge), job.IsPermanent(err):
		end.fault = err
	default:
		r.msg.log.Log(ctx, outage.Level(err, slog.LevelWarn), "state of a failed job not saved; the one before stands", "error", err)
	}
}

// writeWithState makes a last write with the last report. If the state cannot be
// recorded, or cannot be sent in time, it writes the report without it: a state must
// not keep the job from ending. The outputs that a state relies on are sent before it, and
// withOutputs says that they are sent even if there is no new state. leftOut reports that the
// last state is not in the record.
func (r *recorder) writeWithState(ctx context.Context, withOutputs bool,
	write func(context.Context, checkpoint.Snapshot) error) (leftOut bool, err error) {
	s, fault := r.unsaved(), tooLarge(r.latest())
	before := r.recordedState()
	if fault == nil {
		statesCtx, cancel := drain.Outlive(r.msg.tries.In(ctx), drain.UntilStates)
		defer cancel()
		if withOutputs || s.HasState() {
			err = r.prepareOutputs(statesCtx)
		}
		if err == nil {
			err = r.writeSnapshot(statesCtx, s, write)
		}
		mayRepeat := isRetryable(err) && statesCtx.Err() == nil
		if err == nil || asConflict(err) != nil || mayRepeat {
			return false, err
		}
		fault = err
	}
	err = write(r.msg.cleanup, s.WithoutState())
	// A write of the state whose reply was lost may have taken effect all the same.
	if err == nil && s.HasState() && r.recordedState() == before {
		r.msg.log.ErrorContext(ctx, "last state not saved in time; the job resumes from the checkpoint before", "error", fault)
		return true, nil
	}
	return false, err
}

// writeSnapshot makes a write, and measures it if it holds a state.
func (r *recorder) writeSnapshot(ctx context.Context, s checkpoint.Snapshot, write func(context.Context, checkpoint.Snapshot) error) error {
	if !s.HasState() {
		return write(ctx, s)
	}
	return r.measureSave(func() error { return write(ctx, s) })
}

// measureSave makes a write that records a state, and reports its result.
func (r *recorder) measureSave(write func() error) error {
	begun, step := time.Now(), r.msg.span.Step("checkpoint")
	err := write()
	if step != nil {
		step.Count("spotworker.checkpoint.bytes", r.recordedSize())
		step.End(err)
	}
	result := savedWell
	switch {
	case asConflict(err) != nil:
		result = savedFenced
	case err != nil:
		result = savedFailed
	}
	r.msg.runner.Observer.Saved(result, r.recordedSize(), time.Since(begun))
	return err
}

// situation is this job as the checkpoint policy sees it.
func (r *recorder) situation(since, tried time.Time) checkpoint.Situation {
	return checkpoint.Situation{
		Since: since, Written: r.claim.Exists(), WrittenAt: tried, Failed: r.writeFailed, Changed: r.changed(),
		Cost: r.cost.Mean(), Losses: r.msg.runner.Losses.Losses(), Unwarned: r.msg.runner.Losses.Unwarned(time.Now()) ||
			r.msg.runner.Departure.Advised(),
		Unproven: r.claim.UncleanExits() > 0,
	}
}

// saveInterval is the interval of the job's saves if taking a state costs the handler this time.
func (r *recorder) saveInterval(taking time.Duration) time.Duration {
	r.taking.Store(int64(taking))
	return r.msg.runner.intervalFor(taking)
}

// timed records how long a save took. It returns how long a hand-over takes, 0 until two saves
// are known: the handler takes a state, and the worker sends it as in the last saves. before is
// the time that it returned last.
func (r *recorder) timed(took time.Duration) (handOver, before time.Duration) {
	r.cost.Add(took)
	if mean := r.cost.Mean(); mean > 0 {
		handOver = time.Duration(r.taking.Load()) + mean
	}
	return handOver, time.Duration(r.handOver.Swap(int64(handOver)))
}

// intervalFor is the interval of a job's saves if each costs the handler this time.
func (r *Runner) intervalFor(cost time.Duration) time.Duration {
	return r.Policy.IntervalFor(checkpoint.Situation{
		Cost: cost, Losses: r.Losses.Losses(), Unwarned: r.Losses.Unwarned(time.Now()) || r.Departure.Advised(),
	})
}

// nextWrite is the time within which the record will be written again, as far as the
// handler reports as it did before.
func (r *recorder) nextWrite() time.Duration {
	now := r.situation(time.Now(), time.Now())
	now.Written, now.Failed = true, false // after the write to come
	if r.latest().HasState() {
		now.Unproven = false
	}
	silent := time.Duration(0)
	if !r.latest().HasState() && !r.restored.HasState() {
		silent = r.watch.Elapsed()
	}
	return max(r.msg.runner.Policy.Expected(now, silent), r.watch.LongestSilence())
}

// changed reports whether the last reported state, or an output that was sent, is not
// recorded yet.
func (r *recorder) changed() bool { return r.stateChanged() || r.outputsChanged() }

// stateChanged reports whether the last reported state is not recorded yet.
func (r *recorder) stateChanged() bool {
	latest := r.job.Latest()
	return latest.HasState() && !latest.SameState(r.saved)
}

// progressed reports whether the run made progress: it reported another state than it
// began with, or a larger fraction.
func (r *recorder) progressed() bool {
	latest := r.latest()
	return latest != nil && (latest.HasState() && !latest.SameState(r.restored) || latest.Fraction > r.startFraction)
}

// snapshot is the last report as the record takes it.
func (r *recorder) snapshot() checkpoint.Snapshot {
	if r.job.Job == nil {
		return checkpoint.Snapshot{}
	}
	return r.snapshotOf(r.job.Latest())
}

func (r *recorder) snapshotOf(p *job.Progress) checkpoint.Snapshot {
	if p == nil {
		return checkpoint.Snapshot{}
	}
	s := checkpoint.Snapshot{State: p.State, Stream: p.Stream, Version: p.Version, Needs: p.Needs, Fraction: p.Fraction, Text: p.Text}
	if r.watch != nil {
		s.At = r.watch.ReportedAt(p)
	}
	return s
}

// unsaved is the last report, with its state only if that is not recorded yet.
func (r *recorder) unsaved() checkpoint.Snapshot {
	s := r.snapshot()
	if r.job.Job == nil || !r.stateChanged() {
		return s.WithoutState()
	}
	return s
}

// needs are the needs of the state that a release leaves: of the last report, or of the record.
func (r *recorder) needs() string {
	if s := r.snapshot(); s.HasState() {
		return s.Needs
	}
	if found := r.claim.Record(); found.HasState() {
		return found.StateNeeds
	}
	return ""
}

// unsavedSize is how much a release has to send, in bytes. For a stream that is not
// known in advance: streams come last.
func (r *recorder) unsavedSize() int {
	s := r.unsaved()
	if s.Stream != nil {
		return math.MaxInt
	}
	return len(s.State)
}

// latest is the last report, or nil.
func (r *recorder) latest() *job.Progress {
	if r.job.Job == nil {
		return nil
	}
	return r.job.Latest()
}

// tooLarge returns an error for a state that is too large to record.
func tooLarge(p *job.Progress) error {
	if p != nil && len(p.State) > job.MaxState {
		return fmt.Errorf("state has %d bytes; at most %d are allowed in one piece: report it as a stream", len(p.State), job.MaxState)
	}
	return nil
}

// recordedState is the hash of the state in the record, as far as this delivery knows.
func (r *recorder) recordedState() string {
	if r.claim == nil {
		return ""
	}
	return r.claim.Record().StateHash
}

// recordedSize is the size of the state in the record, in bytes.
func (r *recorder) recordedSize() int64 {
	if r.claim == nil {
		return 0
	}
	return r.claim.Record().StateSize
}

// needsUncharge reports whether the record must say, before a save that may take long,
// that a new state was reported: otherwise an exit during the save would be charged.
func (r *recorder) needsUncharge(s checkpoint.Snapshot) bool {
	record := r.claim.Record()
	return record.Charge && record.UncleanExits() > 0 && (s.Stream != nil || len(s.State) > smallState || r.outputsChanged())
}

// setFacts makes every later write of the record take its facts from this delivery.
func (r *recorder) setFacts(ctx context.Context) {
	r.claim.SetFacts(func(found checkpoint.Facts) checkpoint.Facts { return r.facts(ctx, found) })
}

// facts returns the facts of one write. Values that this delivery does not know yet stay as
// found.
func (r *recorder) facts(ctx context.Context, f checkpoint.Facts) checkpoint.Facts {
	f.Spent, f.Failure = r.spent(ctx), r.known.failure
	if r.known.inputs != "" {
		f.Inputs = r.known.inputs
	}
	if r.outputs != nil {
		f.Outputs = checkpoint.Outputs(r.outputs.Ref())
	}
	if r.output != nil {
		f.Log = r.output.Tail()
	}
	f.FollowUps = r.followUps.addTo(f.FollowUps)
	if r.known.moveReason != nil {
		f.MoveReason = *r.known.moveReason
	}
	if r.watch != nil {
		f.RunTime, f.NextWrite = r.watch.Elapsed(), r.nextWrite()
		f.Charge = chargeable(r.known.charged, f.RunTime, r.changed())
		if last := r.job.Latest(); last != nil && (last.Fraction == 0 || last.Fraction == 1) {
			f.Text = last.Text
		}
	}
	return f
}

// after returns the counts that the record would have after a failure or a break.
func (r *recorder) after(s checkpoint.Snapshot) checkpoint.Attempts {
	return r.claim.After(s, r.known.failure.Repeat)
}

// dropClaim forgets the claim of a record that does not exist, with the facts for it.
func (r *recorder) dropClaim() { r.claim, r.known.inputs = nil, "" }

// runTime returns how long handlers have run for the job, over all deliveries, as far as
// that is known.
func (r *recorder) runTime() time.Duration {
	if r.watch == nil {
		return r.claim.EarlierRunTime()
	}
	return r.claim.EarlierRunTime() + r.watch.Elapsed()
}

// spent returns the cost of this delivery so far, for the ledger in the record.
func (r *recorder) spent(ctx context.Context) ledger.Delivery {
	slot := time.Since(r.msg.begun)
	r.accountedAt.Store(int64(slot))
	s := ledger.Delivery{Slot: slot, End: r.msg.runner.ends.mean()}
	if r.watch != nil {
		s.Handler = r.watch.Elapsed()
	}
	stop := job.StopOf(ctx)
	s.Evicted = stop != nil && stop.Reason == job.Evicted
	return s
}

// accountEnd adds the time that the end of the delivery took, from the last write on,
// for the ledgers of later jobs: a record cannot say how long its own last write took.
func (r *recorder) accountEnd() {
	if at := r.accountedAt.Load(); at > 0 && r.claim.Record().Status != checkpoint.Running {
		r.msg.runner.ends.add(time.Since(r.msg.begun) - time.Duration(at))
	}
}

// average is a moving average of durations. The zero value is ready to use.
type average struct {
	mu    sync.Mutex
	count int
	value time.Duration
}

// add adds a duration. None is left out, however long it was: the averages that are used
// then add up to the durations that were added.
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
