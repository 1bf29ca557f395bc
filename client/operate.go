package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/spotworker/spotworker/internal/operate"
)

// Action is what an operation did about a job.
type Action string

// The actions.
const (
	Replayed  Action = "replayed"  // the job continues
	Purged    Action = "purged"    // the job is cancelled permanently, without its state and payload
	Dropped   Action = "dropped"   // the job needed nothing; an old message was removed
	Refused   Action = "refused"   // nothing was done, and a repeat would not help
	Failed    Action = "failed"    // storage failed; a repeat may help
	Cancelled Action = "cancelled" // nothing of the job is committed from now on
	Over      Action = "over"      // the job had ended before, and is left alone
	NotPoison Action = "not found" // the poison queue has no message of the job
)

// ActionResult is the outcome of an operation on one job.
type ActionResult struct {
	// ID is the job's id, or that of a message that is not a job's.
	ID     string
	Action Action
	Detail string // for people
	Err    error  // of Refused, Failed and NotPoison
}

// Selection selects jobs that were given up. The zero value selects none.
type Selection struct {
	// All selects every job on the poison queue, and IDs those with these ids.
	All bool
	IDs []string
}

// ReplayOptions are settings of [Client.Replay].
type ReplayOptions struct {
	// FromScratch starts the jobs without their recorded state.
	FromScratch bool

	// DefaultKind is the kind of messages of other programs, which are not envelopes.
	// Without it they are refused.
	DefaultKind string
}

// Replay starts jobs again that were given up, from their recorded state. It calls
// report with the outcome for each message on the poison queue that is selected, and
// for each id that has none there, one at a time; an error of report ends it. Replaying
// again is harmless: the record of a job decides what it needs.
//
// It reads the poison queue to its end, and so hides the messages from other operators
// until it returns.
func (c *Client) Replay(ctx context.Context, s Selection, o ReplayOptions, report func(ActionResult) error) error {
	return c.operate(s, report, func(p *operate.PoisonQueue, s operate.Selection, report func(operate.Outcome) error) error {
		p.DefaultKind = o.DefaultKind
		return p.Replay(ctx, s, o.FromScratch, report)
	})
}

// Purge cancels jobs permanently that were given up, and removes their state, payload
// and message; this cannot be undone. It reports like [Client.Replay]. The record stays,
// so that no old message starts the job again.
func (c *Client) Purge(ctx context.Context, s Selection, report func(ActionResult) error) error {
	return c.operate(s, report, func(p *operate.PoisonQueue, s operate.Selection, report func(operate.Outcome) error) error {
		return p.Purge(ctx, s, report)
	})
}

// Cancel cancels jobs that wait or run, with a reason for people. First it writes their
// records: from then on nothing of a job is committed, and no message starts it. Then it
// tells the workers, which stop its handlers. It calls report with each outcome, one at
// a time; an error of report ends it. A job that has ended is left alone, and one that
// was given up too: see [Client.Purge]. Cancelling again is harmless.
//
// An id without a record may wait for its first worker: it gets a record that is
// cancelled, so an id that is misspelt does too.
func (c *Client) Cancel(ctx context.Context, reason string, ids []string, report func(ActionResult) error) error {
	canceller := &operate.Canceller{Records: c.stores.Records, Control: c.stores.Control, Name: c.name, Reason: reason}
	err := canceller.Cancel(ctx, slices.Values(ids), func(o operate.CancelOutcome) error {
		return report(ActionResult{ID: o.ID, Action: Action(o.Action), Detail: o.Detail, Err: c.readable(o.Err, toWrite)})
	})
	return c.readable(err, toWrite)
}

// operate runs an operation on the poison queue.
func (c *Client) operate(s Selection, report func(ActionResult) error, do func(*operate.PoisonQueue, operate.Selection, func(operate.Outcome) error) error) error {
	found := map[string]bool{}
	p := &operate.PoisonQueue{
		Poison: c.stores.Poison, Queue: c.stores.Queue, OnDemand: c.stores.OnDemand,
		Payloads: c.stores.Payloads, Records: c.stores.Records, Name: c.name,
	}
	err := do(p, operate.Selection{All: s.All, Names: s.IDs}, func(o operate.Outcome) error {
		for _, id := range []string{o.Job, o.Poison.ID, o.MessageID, o.Poison.MessageID} {
			found[id] = true
		}
		return report(c.actionResult(o))
	})
	if err != nil {
		return c.readable(err, toWrite)
	}
	for _, id := range s.IDs {
		if found[id] {
			continue
		}
		if err := report(ActionResult{ID: id, Action: NotPoison, Err: fmt.Errorf("job %s: the poison queue has no message of it", id)}); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) actionResult(o operate.Outcome) ActionResult {
	r := ActionResult{ID: o.Job, Action: Action(o.Action), Detail: o.Detail, Err: c.readable(o.Err, toWrite)}
	if r.ID == "" {
		r.ID = o.MessageID
	}
	if r.Action == Refused {
		r.Err = fmt.Errorf("job %s: %s", r.ID, o.Detail)
	}
	return r
}
