package operate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/queue"
)

const (
	// cancelBatch is how many jobs are cancelled between two changes of the control
	// document.
	cancelBatch = control.MaxCancels

	// cancelParallel is how many records are changed at once.
	cancelParallel = 16
)

// Canceller cancels jobs that wait or run.
type Canceller struct {
	Records *checkpoint.Store
	Control *control.Store
	Name    string // recorded as the last writer

	// Reason is for people, in the jobs' records. Optional.
	Reason string

	// Queues returns the queues on which a job without a record may wait for its first
	// worker. Where they show that the job does not wait, no record is made. Without Queues
	// every such job is barred.
	Queues func(ctx context.Context) ([]*queue.Queue, error)

	// KnownOnly leaves jobs without a record alone, also where they may wait for their
	// first worker.
	KnownOnly bool

	// SeenOnly bars no id: it leaves a job without a record alone, unless its message is
	// among those that the service shows.
	SeenOnly bool
}

// CancelOutcome is the result of a cancel for one job.
type CancelOutcome struct {
	ID     string
	Action Action // Cancelled, Barred, Over, Unknown, Refused or Failed
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
// A job costs two calls, and a thousand jobs two more. A job without a record costs one
// call more. All jobs without a record share one look at the queues, at two calls for
// each queue. Cancelling again is harmless.
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

// batch cancels some jobs and names the cancelled jobs in the control document, also
// after an error: an operation that has begun is finished.
func (c *Canceller) batch(ctx context.Context, ids []string, report func(CancelOutcome) error) error {
	var mu sync.Mutex
	var cancelled []string
	var seen look
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(cancelParallel)
	for _, id := range ids {
		group.Go(func() error {
			if running.Err() != nil {
				return context.Cause(running)
			}
			outcome := c.one(running, id, &seen)
			mu.Lock()
			defer mu.Unlock()
			if slices.Contains([]Action{Cancelled, Barred, Failed}, outcome.Action) { // a write without an answer may have taken effect
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
		return fmt.Errorf("workers were not told of %d jobs that are or may be cancelled, and find out at their next checkpoint; "+
			"repeat the command to tell them: %w", len(ids), err)
	}
	return nil
}

// announceTimeout bounds the change of the control document after an interruption.
const announceTimeout = 30 * time.Second

// one cancels one job. seen holds the queues' front, for all jobs.
func (c *Canceller) one(ctx context.Context, id string, seen *look) CancelOutcome {
	if err := jobid.Validate(id); err != nil {
		return CancelOutcome{ID: id, Action: Refused, Detail: err.Error(), Err: err}
	}
	was, err := c.cancel(ctx, id, c.Queues == nil && !c.KnownOnly)
	switch {
	case !errors.Is(err, checkpoint.ErrNotFound):
		return outcomeOf(id, was, err)
	case c.Queues == nil || c.KnownOnly:
		return CancelOutcome{
			ID: id, Action: Unknown,
			Detail: "it has no record: it waits for its first worker, or there is no such job",
		}
	}
	return c.withoutRecord(ctx, id, seen)
}

// cancel cancels the record of a job, and with create makes one if there is none.
func (c *Canceller) cancel(ctx context.Context, id string, create bool) (checkpoint.Record, error) {
	return c.Records.Cancel(ctx, id, c.Name, c.reason(), create)
}

// withoutRecord cancels a job that had no record a moment ago. If its message is not seen, it
// is barred, unless the queues show that it does not wait there.
func (c *Canceller) withoutRecord(ctx context.Context, id string, seen *look) CancelOutcome {
	seen.once.Do(func() { seen.front, seen.err = c.look(ctx) })
	isSeen, mayHide := seen.ids[id], seen.err != nil || !seen.complete()
	was, err := c.cancel(ctx, id, isSeen || mayHide && !c.SeenOnly)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return unseenOf(id, seen, mayHide)
	}
	o := outcomeOf(id, was, err)
	switch {
	case o.Action != Barred:
	case isSeen:
		o.Action, o.Detail = Cancelled, "its message waits on the queue, and no worker starts it"
	case seen.err != nil:
		o.Detail += fmt.Sprintf("; the queues could not be searched: %v", seen.err)
	}
	return o
}

// unseenOf is the outcome for a job without a record that was seen on no queue, and that is
// not barred although the queues may hide it.
func unseenOf(id string, seen *look, mayHide bool) CancelOutcome {
	o := CancelOutcome{ID: id, Action: Unknown, Detail: "there is no such job: it has no record, and no message of it waits on the queues"}
	if !mayHide {
		return o
	}
	o.Detail = fmt.Sprintf("it has no record, and it is not among the %d of %d messages that the service shows", seen.seen, seen.queued)
	if seen.err != nil {
		o.Detail = fmt.Sprintf("it has no record, and the queues could not be searched: %v", seen.err)
	}
	o.Detail += ". There is no such job, or it waits behind them: spotctl cancel --bar keeps every worker from starting it"
	return o
}

// look is the front of the queues, which are looked at once.
type look struct {
	once sync.Once
	front

	err error // why they could not be searched
}

// look looks at the front of the queues.
func (c *Canceller) look(ctx context.Context) (front, error) {
	queues, err := c.Queues(ctx)
	if err != nil {
		return front{}, err
	}
	return lookAt(ctx, queues...)
}

// outcomeOf describes the effect of a cancel on a record.
func outcomeOf(id string, was checkpoint.Record, err error) CancelOutcome {
	o := CancelOutcome{ID: id, Action: Cancelled, Was: was, Err: err}
	switch {
	case errors.Is(err, checkpoint.ErrUnknownFormat):
		o.Action, o.Detail = Refused, "its record was written by a newer version; use a spotctl of that version"
	case err != nil:
		o.Action, o.Detail = Failed, err.Error()
	case was.Version == 0:
		o.Action, o.Detail = Barred, "it had no record: if it waits for its first worker, none starts it; if there is no such job, the id "+
			"cannot be used while this record is kept"
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
