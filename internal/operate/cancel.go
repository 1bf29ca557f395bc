package operate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/control"
	"github.com/spotworker/spotworker/internal/jobid"
)

const (
	// cancelBatch is how many jobs are cancelled between two changes of the control
	// document.
	cancelBatch = control.MaxCancels

	// cancelParallel is how many records are changed at once.
	cancelParallel = 16
)

// The results of a cancel.
const (
	// Cancelled means that nothing of the job is committed from now on.
	Cancelled Action = "cancelled"

	// Over means that the job had ended before; it is left alone.
	Over Action = "over"

	// Unknown means that the job has no record, and none was made.
	Unknown Action = "unknown"
)

// Canceller cancels jobs that wait or run.
type Canceller struct {
	Records *checkpoint.Store
	Control *control.Store
	Name    string // recorded as the last writer

	// Reason is for people, in the jobs' records. Optional.
	Reason string

	// KnownOnly leaves jobs without a record alone. They may be waiting for their
	// first claim, or not exist.
	KnownOnly bool
}

// CancelOutcome is what was done about one job.
type CancelOutcome struct {
	ID     string
	Action Action // Cancelled, Over, Unknown, Refused or Failed
	Detail string // for people
	Err    error  // of Refused and Failed

	// Was is the job's record as it was; the zero value if there was none.
	Was checkpoint.Record
}

// Cancel cancels jobs: first their records, which decides, then the control document,
// which tells their workers within seconds. It calls report with each outcome, one at
// a time and in any order. An error of report ends the run, and so does the end of
// ctx. The error says that workers could not be told: the jobs that were reported as
// cancelled are, and their workers find out at their next write.
//
// A job costs two calls, and a thousand jobs two more. Cancelling again is harmless.
func (c *Canceller) Cancel(ctx context.Context, ids iter.Seq[string], report func(CancelOutcome) error) error {
	batch := make([]string, 0, cancelBatch)
	for id := range ids {
		if batch = append(batch, id); len(batch) < cancelBatch {
			continue
		}
		if err := c.batch(ctx, batch, report); err != nil {
			return err
		}
		batch = batch[:0]
	}
	return c.batch(ctx, batch, report)
}

// batch cancels some jobs and names those that are cancelled in the control document,
// also after an error: what is begun is finished.
func (c *Canceller) batch(ctx context.Context, ids []string, report func(CancelOutcome) error) error {
	var mu sync.Mutex
	var cancelled []string
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(cancelParallel)
	for _, id := range ids {
		if running.Err() != nil {
			break
		}
		group.Go(func() error {
			if err := running.Err(); err != nil {
				return err
			}
			outcome := c.one(running, id)
			mu.Lock()
			defer mu.Unlock()
			if outcome.Action == Cancelled || outcome.Action == Failed { // a write without an answer may have taken effect
				cancelled = append(cancelled, id)
			}
			return report(outcome)
		})
	}
	err := group.Wait()
	return errors.Join(err, c.announce(ctx, cancelled))
}

// announce names cancelled jobs in the control document.
func (c *Canceller) announce(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
	defer cancel()
	_, err := c.Control.Edit(ctx, func(d *control.Document, now time.Time) (bool, error) {
		d.AddCancels(ids, now)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("tell the workers of %d cancelled jobs, which they find out at their next checkpoint otherwise: %w", len(ids), err)
	}
	return nil
}

// announceTimeout bounds the change of the control document after an interruption.
const announceTimeout = 30 * time.Second

// one cancels one job's record.
func (c *Canceller) one(ctx context.Context, id string) CancelOutcome {
	if err := jobid.Validate(id); err != nil {
		return CancelOutcome{ID: id, Action: Refused, Detail: err.Error(), Err: err}
	}
	was, err := c.Records.Cancel(ctx, id, c.Name, c.reason(), !c.KnownOnly)
	o := CancelOutcome{ID: id, Action: Cancelled, Was: was, Err: err}
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		o.Action, o.Err, o.Detail = Unknown, nil, "it has no record: it waits for its first worker, or there is no such job"
	case errors.Is(err, checkpoint.ErrUnknownFormat):
		o.Action, o.Detail = Refused, "its record was written by a newer version; use a spotctl of that version"
	case err != nil:
		o.Action, o.Detail = Failed, err.Error()
	case was.Version == 0:
		o.Detail = "it had no record: if it waits, no worker starts it; if there is no such job, none of this id can be put while its record is kept"
	case was.Status == checkpoint.Cancelled:
		o.Detail = "it was cancelled before"
	case was.Status == checkpoint.Done:
		o.Action, o.Detail = Over, "it is done already; its result stands"
	case was.Status == checkpoint.Poison:
		o.Action, o.Detail = Over, "it is in the poison queue: spotctl poison purge cancels it there"
	case was.Status == checkpoint.Running:
		o.Detail = fmt.Sprintf("it was running on %s, which stops it within 30 s", was.Owner)
	default:
		o.Detail = "it was waiting for a worker"
	}
	return o
}

func (c *Canceller) reason() string {
	if c.Reason == "" {
		return "cancelled by an operator"
	}
	return c.Reason
}
