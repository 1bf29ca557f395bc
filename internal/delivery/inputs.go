package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/inputs"
	"github.com/spotworker/spotworker/internal/outage"
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
