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

// fetched is the result of a fetch of the job's input files.
type fetched struct {
	files *inputs.Held
	hash  string // of what the inputs were resolved to; empty before that
	err   error
}

// fetchInputs makes the job's input files available; nil if it names none. That is neither run
// time nor silence of the job, and ends at once when the job is stopped.
func (o *owned) fetchInputs(ctx context.Context) (*inputs.Held, *outcome) {
	if len(o.envelope.Inputs) == 0 {
		return nil, nil
	}
	begun, ended := time.Now(), make(chan fetched, 1)
	go func() { ended <- o.tryInputs(ctx) }()
	ticker := time.NewTicker(inputCheck)
	defer ticker.Stop()
	for {
		select {
		case got := <-ended:
			o.inputsHash = got.hash
			if got.err != nil {
				return nil, o.notFetched(ctx, got.err)
			}
			return got.files, nil
		case now := <-ticker.C:
			if conflict := o.checkCancelled(ctx); conflict != nil {
				o.stopForConflict(ctx, conflict)
				if got := <-ended; got.err != nil {
					o.log.DebugContext(ctx, "fetch of the job's inputs stopped", "error", got.err)
				}
				return nil, o.ends(outcomeOf(conflict))
			}
			if leaving := o.env.Departure.Current(); !leaving.MayContinue(drain.Estimate{Begun: begun}, now) {
				o.cancel(drain.ForNotice(leaving.Notice(now)))
			}
		}
	}
}

// notFetched returns the outcome of a job whose input files could not be fetched.
func (o *owned) notFetched(ctx context.Context, err error) *outcome {
	if ctx.Err() != nil {
		return o.ends(stopped(ctx, fmt.Errorf("fetch the job's inputs: %w", err)))
	}
	if job.IsPermanent(err) { // the job may be done, and its inputs gone since: the record shows that
		var out *outcome
		if o, out = o.again(ctx); out != nil {
			return out
		}
	}
	end := &runEnd{err: err}
	blame := o.failureOf(end)
	out := outcomeOfRun(end, o.claim.After(checkpoint.Snapshot{}, blame.Repeat), o.kind.limits)
	out.blame = blame
	return o.ends(out)
}

// tryInputs fetches the inputs, and tries again while storage is unavailable or blobs
// change.
func (o *owned) tryInputs(ctx context.Context) fetched {
	for unavailable, changed := 0, 0; ; {
		got := o.fetchOnce(ctx)
		switch err := got.err; {
		case err == nil || ctx.Err() != nil:
			return got
		case inputs.IsNoSpace(err):
			o.log.WarnContext(ctx, "no room for the inputs of a job on this machine now; it is tried again, here or elsewhere", "error", err,
				"retry_in", noSpacePatience)
			_ = retry.Sleep(ctx, noSpacePatience) // a stop ends it early
			return got
		case inputs.IsChanged(err) && changed < changedTries:
			changed++
			o.log.InfoContext(ctx, "an input changed while it was fetched; looking again", "error", err)
		case job.IsUnavailable(err) && unavailable+1 < inputTries:
			unavailable++
			delay := retryDelays.Delay(unavailable)
			o.log.Log(ctx, outage.Level(err, slog.LevelWarn), "inputs of the job are unavailable; trying again", "error", err, "retry_in", delay)
			if retry.Sleep(ctx, delay) != nil {
				return got
			}
		default:
			return got
		}
	}
}

// fetchOnce resolves  the inputs, compares them with the inputs of the recorded
// state, and fetches them.
func (o *owned) fetchOnce(ctx context.Context) fetched {
	if o.env.Inputs == nil {
		return fetched{err: job.Unavailable(errors.New("this worker has no cache for inputs"))}
	}
	plan, err := o.env.Inputs.Resolve(ctx, o.envelope.Inputs)
	if err != nil {
		return fetched{err: err}
	}
	if r := o.claim.Record(); r.HasWork() && r.Inputs != "" && r.Inputs != plan.Hash() {
		return fetched{err: job.Permanent(fmt.Errorf("the job's inputs changed since its %s made, so it cannot continue from there (written "+
			"last was %s): restore them and replay the job, or start over with spotctl poison replay --from-scratch", workOf(r), plan.Newest()))}
	}
	held, err := o.env.Inputs.Fetch(ctx, plan)
	if err != nil {
		return fetched{hash: plan.Hash(), err: err}
	}
	files, bytes := plan.Files()
	o.log.InfoContext(ctx, "inputs of the job are ready", "files", files, "bytes", bytes, "fetched_bytes", held.Fetched, "took", held.Took)
	return fetched{files: held, hash: plan.Hash()}
}

// workOf names the recorded work that a job continues from.
func workOf(r checkpoint.Record) string {
	if r.HasState() {
		return "checkpoint was"
	}
	return "outputs were"
}

// releaseInputs releases the input files, if there are any, when the job no longer needs them.
func (c *claimed) releaseInputs(files *inputs.Held) {
	if files == nil {
		return
	}
	if err := files.Close(); err != nil {
		c.log.Warn("folder of a job's inputs not removed; the next worker here does that", "error", err)
	}
}
