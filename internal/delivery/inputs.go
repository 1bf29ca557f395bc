package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/job"
)

const (
	// inputCheck is how often a delivery that fetches inputs checks whether the job was
	// cancelled or the VM goes.
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
func (l *loader) fetchInputs(ctx context.Context) *outcome {
	if len(l.msg.envelope.Inputs) == 0 {
		return nil
	}
	begun, fetched := time.Now(), make(chan error, 1)
	go func() { fetched <- l.tryInputs(ctx) }()
	ticker := time.NewTicker(inputCheck)
	defer ticker.Stop()
	for {
		select {
		case err := <-fetched:
			return l.afterFetch(ctx, err)
		case now := <-ticker.C:
			if conflict := l.cancels.check(ctx); conflict != nil {
				if err := <-fetched; err != nil {
					l.msg.log.DebugContext(ctx, "fetch of the job's inputs stopped", "error", err)
				}
				return outcomeOf(conflict)
			}
			if leaving := l.msg.runner.Departure.Current(); !leaving.MayContinue(drain.Estimate{Begun: begun}, now) {
				l.msg.cancel(drain.ForNotice(leaving.Notice(now)))
			}
		}
	}
}

// afterFetch returns the outcome of a fetch that failed.
func (l *loader) afterFetch(ctx context.Context, err error) *outcome {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return stopped(ctx, fmt.Errorf("fetch the job's inputs: %w", err))
	case job.IsPermanent(err) && !l.rec.claim.Exists():
		// The job may be done, and its inputs gone since: the record shows that.
		l.rec.dropClaim()
		if out := l.acq.lookup(ctx); out != nil {
			return out
		}
	}
	end := &runEnd{err: err}
	l.rec.recordMachine(end)
	return outcomeOfRun(end, l.rec.after(checkpoint.Snapshot{}), l.rules.limits)
}

// tryInputs fetches the inputs, and tries again while storage is unavailable or blobs
// change.
func (l *loader) tryInputs(ctx context.Context) error {
	for unavailable, changed := 0, 0; ; {
		err := l.fetchOnce(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case inputs.IsNoSpace(err):
			l.msg.log.WarnContext(ctx, "no room for the inputs of a job on this machine now; it is tried again, here or elsewhere", "error", err,
				"retry_in", noSpacePatience)
			_ = retry.Sleep(ctx, noSpacePatience) // a stop ends it early
			return err
		case inputs.IsChanged(err) && changed < changedTries:
			changed++
			l.msg.log.InfoContext(ctx, "an input changed while it was fetched; looking again", "error", err)
		case job.IsUnavailable(err) && unavailable+1 < inputTries:
			unavailable++
			delay := retryDelays.Delay(unavailable)
			l.msg.log.Log(ctx, outage.Level(err, slog.LevelWarn), "inputs of the job are unavailable; trying again", "error", err, "retry_in", delay)
			if retry.Sleep(ctx, delay) != nil {
				return err
			}
		default:
			return err
		}
	}
}

// fetchOnce resolves the inputs, compares them with the inputs of the recorded
// state, and fetches them.
func (l *loader) fetchOnce(ctx context.Context) error {
	if l.msg.runner.Inputs == nil {
		return job.Unavailable(errors.New("this worker has no cache for inputs"))
	}
	plan, err := l.msg.runner.Inputs.Resolve(ctx, l.msg.envelope.Inputs)
	if err != nil {
		return err
	}
	if r := l.rec.claim.Record(); r.HasWork() && r.Inputs != "" && r.Inputs != plan.Hash() {
		return job.Permanent(fmt.Errorf("the job's inputs changed since its %s made, so it cannot continue from there (written last was %s): "+
			"restore them and replay the job, or start over with spotctl poison replay --from-scratch", workOf(r), plan.Newest()))
	}
	l.rec.known.inputs = plan.Hash()
	held, err := l.msg.runner.Inputs.Fetch(ctx, plan)
	if err != nil {
		return err
	}
	files, bytes := plan.Files()
	l.msg.log.InfoContext(ctx, "inputs of the job are ready", "files", files, "bytes", bytes, "fetched_bytes", held.Fetched, "took", held.Took)
	l.inputs = held
	return nil
}

// workOf names the recorded work that a job continues from.
func workOf(r checkpoint.Record) string {
	if r.HasState() {
		return "checkpoint was"
	}
	return "outputs were"
}

// releaseInputs releases the input files, when the job no longer needs them.
func (l *loader) releaseInputs() {
	if l.inputs == nil {
		return
	}
	if err := l.inputs.Close(); err != nil {
		l.msg.log.Warn("folder of a job's inputs not removed; the next worker here does that", "error", err)
	}
}
