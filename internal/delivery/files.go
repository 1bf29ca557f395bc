package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/outbox"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/inputs"
	"github.com/spotworker/spotworker/internal/joblog"
	"github.com/spotworker/spotworker/internal/outage"
	"github.com/spotworker/spotworker/internal/outputs"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

const (
	// inputCheck is how often a job whose inputs are fetched checks whether it was
	// cancelled or its VM goes.
	inputCheck = time.Second

	// inputTries is how often a fetch is tried on this machine while storage is
	// unavailable, and changedTries how often while blobs keep changing.
	inputTries   = 5
	changedTries = 3

	// noSpacePatience is how long a job whose inputs this machine has no room for keeps
	// its slot. Without it a machine whose disk is full would claim one job after the
	// other and return each at once.
	noSpacePatience = 10 * time.Second
)

// fetchInputs makes the job's input files available, if it names any. That is neither run
// time nor silence of the job, and ends at once when the job is stopped.
func (d *Delivery) fetchInputs(ctx context.Context) (outcome, bool) {
	if len(d.envelope.Inputs) == 0 {
		return outcome{}, true
	}
	begun, fetched := time.Now(), make(chan error, 1)
	go func() { fetched <- d.tryInputs(ctx) }()
	ticker := time.NewTicker(inputCheck)
	defer ticker.Stop()
	for {
		select {
		case err := <-fetched:
			return d.afterFetch(ctx, err)
		case now := <-ticker.C:
			end, over := d.checkCancelled(ctx)
			if over {
				if err := <-fetched; err != nil {
					d.log.DebugContext(ctx, "fetch of the job's inputs stopped", "error", err)
				}
				return outcomeOf(end.conflict), false
			}
			if leaving := d.runner.departure.Current(); !leaving.MayContinue(drain.Estimate{Begun: begun}, now) {
				d.cancel(drain.ForNotice(leaving.Notice(now)))
			}
		}
	}
}

// afterFetch returns the outcome of a fetch that failed. ok is true if it did not.
func (d *Delivery) afterFetch(ctx context.Context, err error) (out outcome, ok bool) {
	switch {
	case err == nil:
		return outcome{}, true
	case ctx.Err() != nil:
		return stopped(ctx, fmt.Errorf("fetch the job's inputs: %w", err)), false
	case job.IsPermanent(err) && !d.claim.Exists():
		// The job may be done, and its inputs gone since: the record shows that.
		d.claim = nil
		if out, ok := d.lookup(ctx); !ok {
			return out, false
		}
	}
	end := ended{err: err}
	d.recordMachine(end)
	d.failure = end.failureClass()
	return decide(end, d.claim.After(checkpoint.Snapshot{}), d.jobLimits), false
}

// tryInputs fetches the inputs, and tries again while storage is unavailable or blobs
// change.
func (d *Delivery) tryInputs(ctx context.Context) error {
	for unavailable, changed := 0, 0; ; {
		err := d.fetchOnce(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case inputs.IsNoSpace(err):
			d.log.WarnContext(ctx, "no room for the inputs of a job on this machine now; it is tried again, here or elsewhere", "error", err, "retry_in", noSpacePatience)
			_ = retry.Sleep(ctx, noSpacePatience) // a stop ends it early
			return err
		case inputs.IsChanged(err) && changed < changedTries:
			changed++
			d.log.InfoContext(ctx, "an input changed while it was fetched; looking again", "error", err)
		case job.IsUnavailable(err) && unavailable+1 < inputTries:
			unavailable++
			delay := retryDelays.Delay(unavailable)
			d.log.Log(ctx, outage.Level(err, slog.LevelWarn), "inputs of the job are unavailable; trying again", "error", err, "retry_in", delay)
			if retry.Sleep(ctx, delay) != nil {
				return err
			}
		default:
			return err
		}
	}
}

// fetchOnce resolves the inputs, compares them with those of the recorded state, and
// fetches them.
func (d *Delivery) fetchOnce(ctx context.Context) error {
	if d.runner.inputs == nil {
		return job.Unavailable(errors.New("this worker has no cache for inputs"))
	}
	plan, err := d.runner.inputs.Resolve(ctx, d.envelope.Inputs)
	if err != nil {
		return err
	}
	if r := d.claim.Record(); r.HasState() && r.Inputs != "" && r.Inputs != plan.Hash() {
		return job.Permanent(fmt.Errorf("the job's inputs changed since its checkpoint was made, so it cannot continue from that (written last was %s): "+
			"restore them and replay the job, or start over with spotctl poison replay --from-scratch", plan.Newest()))
	}
	d.claim.SetInputs(plan.Hash())
	held, err := d.runner.inputs.Fetch(ctx, plan)
	if err != nil {
		return err
	}
	files, bytes := plan.Files()
	d.log.InfoContext(ctx, "inputs of the job are ready", "files", files, "bytes", bytes, "fetched_bytes", held.Fetched, "took", held.Took)
	d.inputs = held
	return nil
}

// releaseInputs releases the input files, when the job no longer needs them.
func (d *Delivery) releaseInputs() {
	if d.inputs == nil {
		return
	}
	if err := d.inputs.Close(); err != nil {
		d.log.Warn("folder of a job's inputs not removed; the next worker here does that", "error", err)
	}
	d.inputs = nil
}

// openOutputs makes the set of the job's outputs, with those that its record names. For a
// job without outputs it makes no call.
func (d *Delivery) openOutputs(ctx context.Context) (outcome, bool) {
	if d.account.outputs == nil {
		return outcome{}, true
	}
	record := d.claim.Record()
	ref, files := outputs.Ref(record.Outputs), []outputs.File(nil)
	err := d.retry(ctx, "read the list of the job's outputs", func() (err error) {
		files, err = d.account.outputs.Files(ctx, record.ID, ref)
		return err
	})
	switch {
	case errors.Is(err, outputs.ErrManifest):
		return decide(ended{err: err}, d.claim.After(checkpoint.Snapshot{}), d.jobLimits), false
	case err != nil:
		return stopped(ctx, err), false
	}
	limits := outputs.Limits(d.outputLimits)
	d.outputs = d.account.outputs.NewSet(record.ID, record.Generation, d.claim.Token(), limits, ref, files)
	d.job.OnOutputs(&outbox.Outbox{Set: d.outputs, Caller: outputCaller{d}})
	return outcome{}, true
}

// errNotSent means that the outputs which a state relies on could not be sent, or not in
// time. What could be repeated was: the state cannot be recorded.
var errNotSent = errors.New("not all outputs of the job could be sent")

// outputsChanged reports whether the job has sent or removed outputs that its record does
// not have yet.
func (d *Delivery) outputsChanged() bool {
	return d.outputs != nil && (d.outputs.Unrecorded() || d.claim.HasNewOutputs())
}

// prepareOutputs makes the outputs ready that the next state relies on: the handler sends
// those that it has not sent, and the next write of the record names all of them. Of the
// time that ctx has left, the handler gets the most, and the list the rest: what was sent
// is recorded even if not all could be.
func (d *Delivery) prepareOutputs(ctx context.Context) error {
	if d.outputs == nil || d.job == nil {
		return nil
	}
	var err error
	if d.job.HasBeforeSave() {
		sending, cancel := mostOf(ctx)
		err = d.job.PrepareSave(sending)
		if err != nil {
			err = fmt.Errorf("%w: %w", errNotSent, err)
		}
		cancel()
	}
	return errors.Join(err, d.recordOutputs(ctx))
}

// mostOf returns a context that has four fifths of the time of ctx.
func mostOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)*4/5)
}

// recordOutputs stores the list of the job's outputs if it has changed. Every later write
// of the record names it.
func (d *Delivery) recordOutputs(ctx context.Context) error {
	if d.outputs == nil || !d.outputs.Unrecorded() {
		return nil
	}
	ref, err := d.outputs.Record(ctx)
	if err != nil {
		return err
	}
	d.claim.CarryOutputs(checkpoint.Outputs(ref))
	return nil
}

// outputCaller is a delivery as its outbox sees it.
type outputCaller struct{ d *Delivery }

// Sent counts and logs a file that the job has stored.
func (c outputCaller) Sent(ctx context.Context, f outputs.File, took time.Duration) {
	c.d.runner.observer.OutputSent(f.Size)
	c.d.log.DebugContext(ctx, "output sent", "name", f.Path, "bytes", f.Size, "took", took)
}

// Retry repeats a call to storage.
func (c outputCaller) Retry(ctx context.Context, what string, try func() error) error {
	return c.d.retry(ctx, what, try)
}

// IsLasting reports whether a further try cannot change an error.
func (c outputCaller) IsLasting(err error) bool { return !isRetryable(err) }

const (
	// logGrace is how long the log of a job may be sent after a stop, once nothing else
	// is left to send.
	logGrace = time.Second

	// logTimeout bounds one write of a log.
	logTimeout = 10 * time.Second
)

// openLog opens the job's own log, and returns the logger for its handler. From now on
// every write of the record has the end of the log.
func (d *Delivery) openLog(record checkpoint.Record) *slog.Logger {
	subject := d.subject
	subject.Generation = record.Generation
	handler := subject.Handler(d.runner.log.Handler())
	d.output = d.account.logs.Open(record.ID, record.CreatedAt, record.Generation, d.runner.owner, record.Log)
	if d.output == nil {
		return slog.New(handler)
	}
	d.claim.CarryLog(d.output.Tail)
	return slog.New(d.output.Handler(handler))
}

// writeLog writes what the record, which was just written, has no room for. It does not
// wait for that: neither the next save nor a stop may.
func (d *Delivery) writeLog(ctx context.Context) {
	d.output.WriteSoon(ctx, logTimeout, func(err error) { d.reportLog(ctx, err) })
}

// writeLastLog does the same at the end of the delivery, when the record is written and
// the message gone. In a drain it waits until all other jobs are released too.
func (d *Delivery) writeLastLog(ctx context.Context) {
	if !d.output.Pending() || !d.claim.Exists() {
		return
	}
	if stop := drain.Of(ctx); stop != nil && !stop.OneJob {
		d.account.logs.WaitForOthers(d.cleanup)
	}
	outlives, cancel := drain.Outlive(d.tries.In(ctx), drain.UntilAfter(logGrace))
	defer cancel()
	defer context.AfterFunc(d.cleanup, cancel)()
	d.reportLog(ctx, d.output.WriteLast(outlives, logTimeout))
}

// reportLog logs that a log could not be stored. Its end is in the record all the same.
func (d *Delivery) reportLog(ctx context.Context, err error) {
	if err == nil || errors.Is(err, joblog.ErrSuperseded) {
		return
	}
	level := slog.LevelDebug
	due, leftOut := d.runner.logFaults.Allow(d.envelope.Kind, time.Now())
	if due && ctx.Err() == nil {
		level = outage.Level(err, slog.LevelWarn)
	}
	d.log.Log(ctx, level, "lines of the job's own log not stored; its record has the last of them", "error", err, "suppressed", leftOut)
}
