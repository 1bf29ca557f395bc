package worker

import (
	"context"
	"fmt"
	"strings"

	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
)

// Acknowledge says whose business it is to let an event go ahead before its
// time. An acknowledgement counts for every VM that the event names.
type Acknowledge string

const (
	// AcknowledgeSelf acknowledges events that name this VM alone.
	AcknowledgeSelf Acknowledge = "self"

	// AcknowledgeNever leaves every event to its NotBefore, or to others.
	AcknowledgeNever Acknowledge = "never"
)

// Validate says what is wrong, or returns nil.
func (a Acknowledge) Validate() error {
	switch a {
	case AcknowledgeSelf, AcknowledgeNever:
		return nil
	default:
		return fmt.Errorf("acknowledge %q: want %s or %s", string(a), AcknowledgeSelf, AcknowledgeNever)
	}
}

// allows reports whether the VM self may acknowledge e.
func (a Acknowledge) allows(e preempt.Event, self preempt.Identity) bool {
	if a != AcknowledgeSelf || e.ID == "" || !e.Names(self) {
		return false
	}
	for _, resource := range e.Resources {
		if !strings.EqualFold(resource, self.Name) {
			return false
		}
	}
	return true
}

// ready reports whether what has to come before an acknowledgement is done.
// Nothing is acknowledged while a drain is under way: what the event does to the
// VM could keep a job from being handed over.
func ready(after preempt.Action, p lifecycle.Position, saved bool) bool {
	drained := p.Facts.Has(lifecycle.WorkReleased)
	switch {
	case p.State == lifecycle.Shutdown && !drained:
		return false
	case after >= preempt.DrainBy:
		return p.State == lifecycle.Shutdown && drained
	case after == preempt.CheckpointNow:
		return saved
	default:
		return true
	}
}

// sendAcknowledgements lets events go ahead as they get ready, until ctx ends.
func (w *watch) sendAcknowledgements(ctx context.Context, client *preempt.Client) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.progress:
		}
		for _, e := range w.toAcknowledge() {
			if err := client.Acknowledge(ctx, e.ID); err != nil {
				w.unacknowledged(ctx, e, err)
				continue
			}
			w.worker.Observer.Acknowledged(askedAccepted)
			w.worker.Log.InfoContext(ctx, "event acknowledged; it may start at any moment", "event_id", e.ID, "type", e.Type)
		}
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

// toAcknowledge returns the events that may be let go ahead now, each once. From
// here on they count as acknowledged: an event of which the VM may be hit at any
// moment is not one to take work under.
func (w *watch) toAcknowledge() []preempt.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var due []preempt.Event
	position := w.worker.machine.Position()
	for _, a := range w.decision.Acknowledgements() {
		id := a.Event.ID
		if w.acknowledged[id] != notAsked || !w.worker.Acknowledge.allows(a.Event, w.identity) {
			continue
		}
		if ready(a.After, position, w.isSaved(a.Event)) {
			w.acknowledged[id] = asked
			due = append(due, a.Event)
		}
	}
	return due
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
	w.judge()
}

// asking is what became of an acknowledgement.
type asking int

const (
	notAsked asking = iota
	asked           // sent, or on its way
	refused         // given up
)
