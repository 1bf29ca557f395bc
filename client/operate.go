package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/queue"
)

// Action is what an operation did about a job.
type Action string

// The actions.
const (
	Replayed  Action = "replayed"  // the job continues
	Purged    Action = "purged"    // the job is cancelled permanently, without its state and payload
	Requeued  Action = "requeued"  // the job has a new message
	Dropped   Action = "dropped"   // the job needed nothing; an old message was removed
	Refused   Action = "refused"   // nothing was done, and a repeat would not help
	Failed    Action = "failed"    // storage failed; a repeat may help
	NotPoison Action = "not found" // the poison queue has no such message

	// Cancelled means that nothing of the job is committed from now on, and Over that
	// the job had ended before and is left alone.
	Cancelled Action = "cancelled"
	Over      Action = "over"

	// Barred means that the id had no record and got one that is cancelled, because the
	// job may wait for its first worker. If there is no such job, the id cannot be used
	// while that record is kept.
	Barred Action = "barred"

	// Unknown means that the id has no record, and got none: there is no such job, or
	// [CancelOptions.KnownOnly] is set.
	Unknown Action = "unknown"
)

// ActionResult is the outcome of an operation on one job.
type ActionResult struct {
	// ID is the job's id, or that of a message that is not a job's.
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
}

// Cancel cancels jobs that wait or run. First it writes their records: from then on
// nothing of a job is committed, and no message starts it. Then it tells the workers,
// which stop its handlers. It calls report with each outcome, one at a time; an error of
// report ends it. A job that has ended is left alone, and one that was given up too: see
// [Client.Purge]. Cancelling again is harmless.
//
// An id without a record is that of a job that waits for its first worker, or of none.
// Cancel looks at the queues, of which the service shows the 32 messages at the front and
// the number of all. If the job is among them, it is [Cancelled]. If these are all
// messages and it is not, the result is [Unknown] and nothing is written. Otherwise it is
// [Barred].
func (c *Client) Cancel(ctx context.Context, ids []string, o CancelOptions, report func(ActionResult) error) error {
	queues := func(ctx context.Context) ([]*queue.Queue, error) {
		jobs, err := c.jobs(ctx)
		for _, part := range c.accounts {
			jobs = append(slices.Clip(jobs), part.stores.OnDemand)
		}
		return jobs, err
	}
	canceller := &operate.Canceller{
		Records: c.stores.Records, Accounts: func(id string) []*checkpoint.Store { return recordsOf(c.likely(id)) }, Control: c.stores.Control, Queues: queues,
		Name: c.name, Reason: o.Reason, KnownOnly: o.KnownOnly,
	}
	err := canceller.Cancel(ctx, slices.Values(ids), func(o operate.CancelOutcome) error {
		return report(c.cancelResult(o))
	})
	return c.readable(err, toWrite)
}

func (c *Client) cancelResult(o operate.CancelOutcome) ActionResult {
	r := ActionResult{ID: o.ID, Action: Action(o.Action), Was: Status(o.Was.Status), Detail: o.Detail, Err: c.readable(o.Err, toWrite)}
	switch {
	case r.Action == Unknown:
		r.Err = fmt.Errorf("job %s: %w", o.ID, ErrNotFound)
	case r.Action == Failed && r.Err != nil:
		r.Detail = r.Err.Error()
	}
	return r
}
