package operate

import (
	"context"
	"errors"
	"sync"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// Action is what was done about a poison message or an orphan.
type Action string

// The actions. The first three took the message off the poison queue.
const (
	Replayed Action = "replayed" // the job goes on
	Purged   Action = "purged"   // the job is cancelled, or there was none
	Dropped  Action = "dropped"  // the message alone is gone: its job needs nothing
	Refused  Action = "refused"  // nothing was done, and nothing would be another time
	Failed   Action = "failed"   // storage failed; it can be done again
	Requeued Action = "requeued" // a job without a message has one again
)

// Outcome tells what became of one poison message.
type Outcome struct {
	Item
	Job    string // the job's id; empty where nobody knows it
	Action Action
	Detail string // why, for people
	Err    error  // of Failed
}

func (o Outcome) gone() bool {
	return o.Action == Replayed || o.Action == Purged || o.Action == Dropped
}

// errReport marks an error of whoever is told.
var errReport = errors.New("the outcome cannot be told")

// run is one replay or purge of many messages.
type run struct {
	*PoisonQueue
	selection Selection
	report    func(Outcome) error
	act       func(context.Context, *claimed, *work) (Action, string, error)

	mu   sync.Mutex                     // guards telling, and what follows
	done map[checkpoint.Delivery]Action // work that this run replayed or purged
}

// all walks through the poison queue and acts on what is meant.
func (r *run) all(ctx context.Context) error {
	r.done = map[checkpoint.Delivery]Action{}
	return r.scan(ctx, r.selection, r.one, nil)
}

// one acts on one message and tells what became of it. Only a failure to tell
// ends the run: the next message may fare better.
func (r *run) one(ctx context.Context, c *claimed) (gone bool, err error) {
	out := Outcome{Item: c.Item}
	var w work
	if out.Fault == nil {
		w, err = r.workOf(ctx, c.Item)
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
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.isJob && (out.Action == Replayed || out.Action == Purged) {
		r.done[w.delivery()] = out.Action
	}
	if err := r.report(out); err != nil {
		return out.gone(), errors.Join(errReport, err)
	}
	return out.gone(), nil
}

// before returns what this run did to the same work already.
func (r *run) before(w *work) Action {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[w.delivery()]
}
