package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/runtimedir"
)

// sendAcknowledgements tells others what this worker is ready for, and lets events
// go ahead when all are, until ctx ends.
func (w *watch) sendAcknowledgements(ctx context.Context, client *preempt.Client) {
	for pending := false; ; {
		var again <-chan time.Time
		if pending {
			again = time.After(retryAcknowledge)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.progress:
		case <-again:
		}
		pending = w.acknowledgeReady(ctx, client)
	}
}

// acknowledgeReady acknowledges what may be, and reports whether to look again
// soon.
func (w *watch) acknowledgeReady(ctx context.Context, client *preempt.Client) (pending bool) {
	w.mu.Lock()
	events := w.readyFor()
	w.mu.Unlock()
	err := w.record(ctx, events)
	if w.waits(ctx, preempt.Event{}, err); err != nil {
		return true
	}
	for _, a := range events {
		if !w.claim(a.Event) {
			continue
		}
		switch err := w.permit(ctx, a); {
		case errors.Is(err, runtimedir.ErrTaken):
			w.worker.Log.InfoContext(ctx, "event is acknowledged by another worker of this VM", "event_id", a.Event.ID, "type", a.Event.Type)
		case err != nil:
			w.unclaim(a.Event)
			w.waits(ctx, a.Event, err)
			pending = true
		default:
			w.send(ctx, client, a.Event)
		}
	}
	return pending
}

// permit returns nil when everybody who has to be ready for an event is.
func (w *watch) permit(ctx context.Context, a preempt.Acknowledgement) error {
	if !namesAlone(a.Event, preempt.Identity{Name: w.vm()}) {
		if err := w.askOthers(ctx, a.Event); err != nil {
			return err
		}
	}
	if w.worker.Runtime == nil {
		return nil
	}
	e := runtimedir.Event{ID: a.Event.ID, NotBefore: a.Event.NotBefore}
	return w.worker.Runtime.Acknowledge(ctx, e, a.After >= preempt.DrainBy)
}

func (w *watch) send(ctx context.Context, client *preempt.Client, e preempt.Event) {
	if err := client.Acknowledge(ctx, e.ID); err != nil {
		w.unacknowledged(ctx, e, err)
		return
	}
	w.worker.Observer.Acknowledged(askedAccepted)
	w.worker.Log.InfoContext(ctx, "event acknowledged; it may start at any moment", "event_id", e.ID, "type", e.Type)
}

// waits logs whom an acknowledgement waits for, or for no event what keeps this
// worker from saying that it is ready, when that changes.
func (w *watch) waits(ctx context.Context, e preempt.Event, err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if ctx.Err() != nil || w.waiting[e.ID] == why {
		return
	}
	w.waiting[e.ID] = why
	switch {
	case err == nil:
		w.worker.Log.InfoContext(ctx, "events that this worker is ready for are recorded again")
	case e.ID == "":
		w.worker.Log.WarnContext(ctx, "events that this worker is ready for cannot be recorded; none is acknowledged until they are", "error", err)
	default:
		w.worker.Log.InfoContext(ctx, "acknowledgement waits", "event_id", e.ID, "type", e.Type, "for", why)
	}
}

// madeProgress makes the acknowledgements look again: something was decided,
// saved or released. It does not wait.
func (w *watch) madeProgress() {
	select {
	case w.progress <- struct{}{}:
	default:
	}
}

// claim reports whether e is to be acknowledged by this worker now. From here on
// it counts as acknowledged: an event of which the VM may be hit at any moment is
// not one to take work under.
func (w *watch) claim(e preempt.Event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	isReady := slices.ContainsFunc(w.readyFor(), func(a preempt.Acknowledgement) bool { return a.Event.ID == e.ID })
	if !isReady || w.acknowledged[e.ID] != notAsked || !w.worker.Acknowledge.allows(e, w.identity) {
		return false
	}
	w.acknowledged[e.ID] = asked
	return true
}

// unclaim takes the claim back: others are not ready for e yet.
func (w *watch) unclaim(e preempt.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.acknowledged, e.ID)
	w.follow(w.decision, time.Now())
}

// unacknowledged takes note that an event stays as announced. It is not asked
// for again, and the VM may have work until its time.
func (w *watch) unacknowledged(ctx context.Context, e preempt.Event, err error) {
	if ctx.Err() != nil {
		return
	}
	w.worker.Observer.Acknowledged(askedRefused)
	w.worker.Log.WarnContext(ctx, "event not acknowledged; it starts at its own time", "event_id", e.ID, "type", e.Type, "error", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acknowledged[e.ID] = refused
	w.decide()
}

// asking is what became of an acknowledgement.
type asking int

const (
	notAsked asking = iota
	asked           // sent, or on its way
	refused         // given up
)
