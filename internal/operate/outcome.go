package operate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// Action is the result of an operation on a job.
type Action string

// The actions. The first three took the message off the poison queue, the last four are of a cancel.
const (
	Replayed  Action = "replayed"  // the job continues
	Purged    Action = "purged"    // the job is cancelled, or there was none
	Dropped   Action = "dropped"   // only the message was removed: its job needs nothing
	Refused   Action = "refused"   // nothing was done, and a repeat would not help
	Failed    Action = "failed"    // storage failed; a repeat may help
	Requeued  Action = "requeued"  // a job without a message got a new one
	NotPoison Action = "not found" // the poison queue has no such message
	Cancelled Action = "cancelled" // nothing of the job is committed from now on
	Over      Action = "over"      // the job had ended before; it is left alone
	Barred    Action = "barred"    // the job had no record and has a cancelled one now, so it never starts
	Unknown   Action = "unknown"   // the job has no record, and none was made
)

// Outcome is the result of an action on one poison message.
type Outcome struct {
	Item
	Job    string // the job's id; empty if unknown
	Action Action
	Detail string // the reason, for people
	Err    error  // if Action is Failed
}

func (o Outcome) gone() bool {
	return o.Action == Replayed || o.Action == Purged || o.Action == Dropped
}

// errReport marks an error of the caller's report function.
var errReport = errors.New("cannot report the outcome")

// bulkRun is one replay or purge of many messages.
type bulkRun struct {
	poison    *PoisonQueue
	selection Selection
	report    func(Outcome) error
	act       func(context.Context, *claimed, *work) (Action, string, error)

	mu   sync.Mutex                   // guards calls of report, and what follows
	done map[checkpoint.Delivery]done // jobs that this run replayed or purged
}

// done is the action of a run on a job.
type done struct {
	action  Action
	message string    // id of the job's original message
	at      time.Time // of the action or before, by the service's clock
	batch   int       // of the poison message
}

// notOfThisRun is the action on a message that was put during the run. It stays on the poison
// queue, and is not reported.
const notOfThisRun Action = ""

// all scans the poison queue and acts on the selected messages.
func (r *bulkRun) all(ctx context.Context) error {
	r.done = map[checkpoint.Delivery]done{}
	return r.poison.scan(ctx, r.selection, r.one, nil)
}

// one acts on one message and reports the outcome. A failed action does not end the
// run; a failed report does.
func (r *bulkRun) one(ctx context.Context, c *claimed) (gone bool, err error) {
	out := Outcome{Item: c.Item}
	var w work
	if out.Fault == nil {
		w, err = r.poison.workOf(ctx, c.Item)
	}
	out.Job = w.id
	if err == nil {
		out.Action, out.Detail, err = r.act(ctx, c, &w)
	}
	switch {
	case errors.Is(err, checkpoint.ErrOtherWork), errors.Is(err, checkpoint.ErrUnknownFormat):
		out.Action, out.Detail = Refused, err.Error()
	case err != nil:
		out.Action, out.Err = Failed, err
	case out.Action == notOfThisRun:
		return false, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.isJob && (out.Action == Replayed || out.Action == Purged) {
		r.done[w.delivery()] = done{out.Action, w.poison.MessageID, w.actedAt, c.batch}
	}
	if err := r.report(out); err != nil {
		return out.gone(), errors.Join(errReport, err)
	}
	return out.gone(), nil
}

// before returns the earlier action of this run on the same job.
func (r *bulkRun) before(w *work) done {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[w.delivery()]
}
