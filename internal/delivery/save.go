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
	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/job"
)

// smallState is the largest state, in bytes, that is saved about as fast as a
// write without one.
const smallState = 64 << 10

// writeRecord makes a write of the kind that is due.
func (l *loaded) writeRecord(ctx context.Context, due checkpoint.Due, latest *job.Progress) error {
	if due == checkpoint.DueTouch {
		return l.claim.Touch(ctx, l.snapshotOf(latest))
	}
	s := l.snapshotOf(latest)
	if !l.stateChanged() {
		s = s.WithoutState() // there are new outputs
	}
	s, release := s.Held() // sending outputs takes time, in which the handler reports again
	defer release()
	if l.needsUncharge(s) {
		if err := l.claim.Touch(ctx, s.WithoutState()); err != nil {
			return err
		}
	}
	return l.saveState(ctx, s)
}

// saveState saves a state, after the outputs that it relies on.
func (l *loaded) saveState(ctx context.Context, s checkpoint.Snapshot) error {
	return l.measureSave(func() error {
		if err := l.prepareOutputs(ctx); err != nil {
			return err
		}
		return l.claim.Save(ctx, s)
	})
}

// saveStream saves the streamed state of a job that failed, before its failure is
// counted: only then it is known whether the job made progress. It adds the conflict or
// fault of the save to end.
func (l *loaded) saveStream(ctx context.Context, end *runEnd) {
	latest, s := l.job.Latest(), l.unsaved()
	if s.Stream == nil {
		return
	}
	ctx, cancel := drain.Outlive(l.tries.In(ctx), drain.UntilStates)
	defer cancel()
	err := l.retry(ctx, "save the state of a failed job", func() error { return l.saveState(ctx, s) })
	switch conflict := asConflict(err); {
	case err == nil:
		l.saved = latest
		l.watch.Saved()
	case conflict != nil:
		end.conflict = conflict
	case errors.Is(err, checkpoint.ErrTooLarge), job.IsPermanent(err):
		end.fault = err
	default:
		l.log.Log(ctx, outage.Level(err, slog.LevelWarn), "state of a failed job not saved; the one before stands", "error", err)
	}
}

// measureSave makes a write that records a state, and reports its result.
func (o *owned) measureSave(write func() error) error {
	begun, step := time.Now(), o.span.Step("checkpoint")
	err := write()
	if step != nil {
		step.Count("spotworker.checkpoint.bytes", o.recordedSize())
		step.End(err)
	}
	result := observe.SavedWell
	switch {
	case asConflict(err) != nil:
		result = observe.SavedFenced
	case err != nil:
		result = observe.SavedFailed
	}
	o.env.Observe(observe.Saved{Result: result, Bytes: o.recordedSize(), Took: time.Since(begun)})
	return err
}

// situation is this job as the checkpoint policy sees it.
func (l *loaded) situation(since, tried time.Time) checkpoint.Situation {
	return checkpoint.Situation{
		Since: since, Written: l.claim.Exists(), WrittenAt: tried, Failed: l.writeFailed, Changed: l.changed(),
		Cost: l.cost.Mean(), Losses: l.env.Losses.Losses(), Unwarned: l.env.Losses.Unwarned(time.Now()) ||
			l.env.Departure.Advised(),
		Unproven: l.claim.UncleanExits() > 0,
	}
}

// saveInterval is the interval of the job's saves if taking a state costs the handler this time.
func (l *loaded) saveInterval(taking time.Duration) time.Duration {
	l.taking.Store(int64(taking))
	return l.env.intervalFor(taking)
}

// timed records how long a save took. It returns how long a hand-over takes, 0 until two saves
// are known: the handler takes a state, and the worker sends it as in the last saves. before is
// the time that it returned last.
func (l *loaded) timed(took time.Duration) (handOver, before time.Duration) {
	l.cost.Add(took)
	if mean := l.cost.Mean(); mean > 0 {
		handOver = time.Duration(l.taking.Load()) + mean
	}
	return handOver, time.Duration(l.handOver.Swap(int64(handOver)))
}

// intervalFor is the interval of a job's saves if each costs the handler this time.
func (r *Runner) intervalFor(cost time.Duration) time.Duration {
	return r.Policy.IntervalFor(checkpoint.Situation{
		Cost: cost, Losses: r.Losses.Losses(), Unwarned: r.Losses.Unwarned(time.Now()) || r.Departure.Advised(),
	})
}

// nextWrite is the time within which the record will be written again, as far as the
// handler reports as it did before.
func (l *loaded) nextWrite() time.Duration {
	now := l.situation(time.Now(), time.Now())
	now.Written, now.Failed = true, false // after the write to come
	if l.latest().HasState() {
		now.Unproven = false
	}
	silent := time.Duration(0)
	if !l.latest().HasState() && !l.restored.HasState() {
		silent = l.watch.Elapsed()
	}
	return max(l.env.Policy.Expected(now, silent), l.watch.LongestSilence())
}

// changed reports whether the last reported state, or an output that was sent, is not
// recorded yet.
func (l *loaded) changed() bool { return l.stateChanged() || l.outputsChanged() }

// stateChanged reports whether the last reported state is not recorded yet.
func (l *loaded) stateChanged() bool {
	latest := l.job.Latest()
	return latest.HasState() && !latest.SameState(l.saved)
}

// progressed reports whether the run made progress: it reported another state than it
// began with, or a larger fraction.
func (l *loaded) progressed() bool {
	latest := l.latest()
	return latest != nil && (latest.HasState() && !latest.SameState(l.restored) || latest.Fraction > l.startFraction)
}

// snapshot is the last report as the record takes it; empty for a job that was not loaded.
func (l *loaded) snapshot() checkpoint.Snapshot {
	if l == nil {
		return checkpoint.Snapshot{}
	}
	return l.snapshotOf(l.job.Latest())
}

func (l *loaded) snapshotOf(p *job.Progress) checkpoint.Snapshot {
	if p == nil {
		return checkpoint.Snapshot{}
	}
	return checkpoint.Snapshot{
		State: p.State, Stream: p.Stream, Version: p.Version, Needs: p.Needs, Fraction: p.Fraction, Text: p.Text, At: l.watch.ReportedAt(p),
	}
}

// unsaved is the last report, with its state only if that is not recorded yet.
func (l *loaded) unsaved() checkpoint.Snapshot {
	s := l.snapshot()
	if l == nil || !l.stateChanged() {
		return s.WithoutState()
	}
	return s
}

// unsavedSize is how much a release has to send, in bytes. For a stream that is not
// known in advance: streams come last.
func (l *loaded) unsavedSize() int {
	s := l.unsaved()
	if s.Stream != nil {
		return math.MaxInt
	}
	return len(s.State)
}

// latest is the last report, or nil.
func (l *loaded) latest() *job.Progress {
	if l == nil {
		return nil
	}
	return l.job.Latest()
}

// tooLarge returns an error for a state that is too large to record.
func tooLarge(p *job.Progress) error {
	if p != nil && len(p.State) > job.MaxState {
		return fmt.Errorf("state has %d bytes; at most %d are allowed in one piece: report it as a stream", len(p.State), job.MaxState)
	}
	return nil
}

// recordedState is the hash of the state in the record, as far as this delivery knows.
func (o *owned) recordedState() string { return o.claim.Record().StateHash }

// recordedSize is the size of the state in the record, in bytes; 0 if there is no record.
func (o *owned) recordedSize() int64 {
	if o == nil {
		return 0
	}
	return o.claim.Record().StateSize
}

// needsUncharge reports whether the record must say, before a save that may take long,
// that a new state was reported: otherwise an exit during the save would be charged.
func (l *loaded) needsUncharge(s checkpoint.Snapshot) bool {
	record := l.claim.Record()
	return record.Charge && record.UncleanExits() > 0 && (s.Stream != nil || len(s.State) > smallState || l.outputsChanged())
}

// facts returns the facts of one write before the job is loaded. Values that this delivery does
// not know yet stay as found.
func (o *owned) facts(f checkpoint.Facts) checkpoint.Facts {
	f.Spent = o.spent()
	if o.inputsHash != "" {
		f.Inputs = o.inputsHash
	}
	return f
}

// facts returns the facts of one write.
func (l *loaded) facts(f checkpoint.Facts) checkpoint.Facts {
	f = l.owned.facts(f)
	f.Spent.Handler = l.watch.Elapsed()
	if l.outputs != nil {
		f.Outputs = checkpoint.Outputs(l.outputs.Ref())
	}
	if l.output != nil {
		f.Log = l.output.Tail()
	}
	f.FollowUps = l.followUps.addTo(f.FollowUps)
	f.RunTime, f.NextWrite = l.watch.Elapsed(), l.nextWrite()
	f.Charge = chargeable(l.charged, f.RunTime, l.changed())
	if last := l.job.Latest(); last != nil && (last.Fraction == 0 || last.Fraction == 1) {
		f.Text = last.Text
	}
	return f
}

// runTime returns how long handlers have run for the job, over all deliveries, as far as
// that is known.
func (l *loaded) runTime() time.Duration { return l.claim.EarlierRunTime() + l.watch.Elapsed() }

// spent returns the cost of this delivery so far, for the ledger in the record, without the
// handler's time.
func (o *owned) spent() ledger.Delivery {
	slot := time.Since(o.begun)
	o.accountedAt.Store(int64(slot))
	stop := job.StopOf(o.stoppable)
	return ledger.Delivery{Slot: slot, End: o.env.ends.mean(), Evicted: stop != nil && stop.Reason == job.Evicted}
}

// accountEnd adds the time that the end of the delivery took, from the last write on,
// for the ledgers of later jobs: a record cannot say how long its own last write took.
func (o *owned) accountEnd() {
	if at := o.accountedAt.Load(); at > 0 && o.claim.Record().Status != checkpoint.Running {
		o.env.ends.add(time.Since(o.begun) - time.Duration(at))
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
