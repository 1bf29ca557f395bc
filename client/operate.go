package client

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/queue"
)

// Action is an operation's outcome for a job.
type Action = operate.Action

// The actions.
const (
	Replayed  = operate.Replayed  // the job continues
	Purged    = operate.Purged    // the job is cancelled permanently, without its state and payload
	Requeued  = operate.Requeued  // the job has a new message
	Dropped   = operate.Dropped   // the job needed nothing; an old message was removed
	Refused   = operate.Refused   // nothing was done, and a repeat would not help
	Failed    = operate.Failed    // storage failed; a repeat may help
	NotPoison = operate.NotPoison // the poison queue has no such message

	// Cancelled means that nothing of the job is committed from now on, and Over that
	// the job had ended before and is left alone.
	Cancelled = operate.Cancelled
	Over      = operate.Over

	// Barred means that the id had no record and got a cancelled record, because the
	// job may wait for its first worker. While that record is kept, a new job of the id
	// takes [PutOptions.Again].
	Barred = operate.Barred

	// Unknown means that the id has no record, and got none: there is no such job, or [CancelOptions.KnownOnly] is set.
	Unknown = operate.Unknown
)

// ActionResult is the outcome of an operation on one job.
type ActionResult struct {
	// ID is the job's id, or the id of a message that is not a job's.
	ID string

	// MessageID is the id of the message on the poison queue that was selected; empty for
	// an operation on jobs.
	MessageID string

	Action Action
	Was    Status // of the job before, as far as it had a record; of Cancel
	Detail string // for people
	Err    error  // of Refused, Failed, Unknown and NotPoison
}

// CancelOptions are settings of [Client.Cancel].
type CancelOptions struct {
	// Reason is for people; it is kept in the jobs' records.
	Reason string

	// KnownOnly leaves jobs without a record alone, also where they may wait for their
	// first worker.
	KnownOnly bool

	// SeenOnly bars no id: a job without a record is [Unknown] unless the service shows its
	// message.
	SeenOnly bool
}

// Cancel cancels jobs that wait or run. First it writes their records: from then on
// nothing of a job is committed, and no message starts it. Then it tells the workers,
// which stop its handlers. It calls report with each outcome, one at a time; an error of
// report ends it. A job that has ended is left alone, and so is a dead-lettered job: see
// [Client.Purge]. Cancelling again is harmless.
//
// If an id has no record, the job waits for its first worker, or there is no such job.
// Cancel looks at the queues: the service shows the 32 messages at the front of each and
// the number of all. If the job is among them, it is [Cancelled]. If these are all
// messages and it is not, the result is [Unknown] and nothing is written. Otherwise it is
// [Barred].
func (c *Client) Cancel(ctx context.Context, ids []string, o CancelOptions, report func(ActionResult) error) error {
	queues := func(ctx context.Context) ([]*queue.Queue, error) {
		err := c.readShards(ctx)
		return c.stores.JobQueues(), err
	}
	canceller := &operate.Canceller{
		Records: c.stores.Records, Control: c.stores.Control, Queues: queues,
		Name: c.name, Reason: o.Reason, KnownOnly: o.KnownOnly, SeenOnly: o.SeenOnly,
	}
	err := canceller.Cancel(ctx, slices.Values(ids), func(o operate.CancelOutcome) error {
		return report(c.cancelResult(o))
	})
	return c.readable(err, toWrite)
}

func (c *Client) cancelResult(o operate.CancelOutcome) ActionResult {
	r := ActionResult{ID: o.ID, Action: o.Action, Was: Status(o.Was.Status), Detail: o.Detail, Err: c.readable(o.Err, toWrite)}
	switch {
	case r.Action == Unknown:
		r.Err = fmt.Errorf("job %s: %w", o.ID, ErrNotFound)
	case r.Action == Failed && r.Err != nil:
		r.Detail = r.Err.Error()
	}
	return r
}

// MinCleanAge is the least [CleanOptions.OlderThan], 8 days. The record of a job that has
// ended keeps a message of it that is left, or that was put twice, from starting it
// again; and a message can be hidden for 7 days.
const MinCleanAge = operate.MinCleanAge

// Why [Client.Clean] removes nothing.
var (
	// ErrTooYoung means that OlderThan is less than [MinCleanAge].
	ErrTooYoung = operate.ErrTooYoung

	// ErrBacklog means that the queue has a message that was put longer ago than
	// OlderThan, so that a message of a job that has ended may be behind it.
	ErrBacklog = operate.ErrBacklog
)

// CleanOptions say what [Client.Clean] removes.
type CleanOptions struct {
	// OlderThan is the least age of removed jobs: the time since the job's record was
	// written, by the clock of the storage service. Required, at least [MinCleanAge].
	OlderThan time.Duration

	// Status selects StatusDone or StatusCancelled; both if it is empty. Jobs that were
	// dead-lettered are for [Client.Purge], which makes them cancelled.
	Status []Status

	// Kind selects the jobs of a kind, and Prefix the jobs whose id starts with it.
	Kind, Prefix string

	// DryRun counts and removes nothing.
	DryRun bool

	// Progress, if set, is called now and then with the counts so far, and Failed with
	// each job that could not be removed: from other goroutines, but one at a time.
	Progress func(CleanReport)
	Failed   func(id string, err error)
}

// CleanReport counts the removed items, or in a dry run the items to remove.
type CleanReport = operate.CleanReport

// Clean removes jobs that have ended: their records with the results, their logs and their
// outputs; and outputs that no record names. A job that waits, runs or was dead-lettered is left
// alone, and so is a job whose record is written during the run. Repeating it removes the
// rest after an interruption.
//
// A job whose record is gone is forgotten: a job that is put with the same id is
// another job and runs. So is a message of it that is left on a queue that the client
// does not know. The error is [ErrTooYoung] or [ErrBacklog] if that cannot be ruled
// out.
//
// It costs a call for each 5,000 records, logs and outputs, one or two for each job, one
// for each output that is removed, and up to two for each job that keeps old ones.
func (c *Client) Clean(ctx context.Context, o CleanOptions) (CleanReport, error) {
	if err := o.check(); err != nil {
		return CleanReport{}, err
	}
	n := toWrite
	if o.DryRun {
		n = toRead
	}
	if err := c.readShards(ctx); err != nil { // which queues there are to look at
		return CleanReport{}, c.failure(ctx, err, n)
	}
	var mu sync.Mutex // guards calls of Progress and Failed
	report, err := c.cleaner(o).Clean(ctx, func(r CleanReport) {
		mu.Lock()
		defer mu.Unlock()
		if o.Progress != nil {
			o.Progress(r)
		}
	}, func(id string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if o.Failed != nil {
			o.Failed(id, c.readable(err, n))
		}
	})
	return report, c.failure(ctx, err, n)
}

// cleaner removes old jobs.
func (c *Client) cleaner(o CleanOptions) *operate.Cleaner {
	return &operate.Cleaner{
		Records: c.stores.Records, Logs: c.stores.Logs, Outputs: c.stores.Outputs, Queues: c.stores.JobQueues,
		Poison:    c.stores.Poison,
		OlderThan: o.OlderThan, DryRun: o.DryRun, SkipOrphanedLogs: len(o.Status) > 0 || o.Kind != "" || o.Prefix != "",
		Select: func(r checkpoint.Record) bool {
			return (len(o.Status) == 0 || slices.Contains(o.Status, Status(r.Status))) &&
				(o.Kind == "" || r.Kind == o.Kind) && strings.HasPrefix(r.ID, o.Prefix)
		},
	}
}

// check refuses what cannot be cleaned.
func (o CleanOptions) check() error {
	for _, s := range o.Status {
		if s != StatusDone && s != StatusCancelled {
			return fmt.Errorf("clean jobs that are %s: only those that are done or cancelled are over; Purge cancels those that were "+
				"dead-lettered", s)
		}
	}
	return nil
}
