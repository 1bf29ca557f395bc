package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/vmshare"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

// Acknowledge says which worker may acknowledge an event early. An acknowledgement
// counts for every VM that the event names.
type Acknowledge string

const (
	// AcknowledgeSelf acknowledges events that name this VM alone.
	AcknowledgeSelf Acknowledge = "self"

	// AcknowledgeLeader acknowledges those too that name several VMs, once the workers of
	// all are ready: the first VM with a worker that is not silent does.
	AcknowledgeLeader Acknowledge = "leader"

	// AcknowledgeNever leaves every event to its NotBefore, or to others.
	AcknowledgeNever Acknowledge = "never"
)

// Validate returns an error that names the fault, or nil.
func (a Acknowledge) Validate() error {
	switch a {
	case AcknowledgeSelf, AcknowledgeLeader, AcknowledgeNever:
		return nil
	default:
		return fmt.Errorf("acknowledge %q: want %s, %s or %s", string(a), AcknowledgeSelf, AcknowledgeLeader, AcknowledgeNever)
	}
}

// allows reports whether the VM self may acknowledge e.
func (a Acknowledge) allows(e preempt.Event, self preempt.Identity) bool {
	if e.ID == "" || !e.Names(self) {
		return false
	}
	switch a {
	case AcknowledgeSelf:
		return namesAlone(e, self.Name)
	case AcknowledgeLeader:
		return true
	default:
		return false
	}
}

// namesAlone reports whether e names no other VM than that.
func namesAlone(e preempt.Event, vm string) bool {
	return !slices.ContainsFunc(e.Resources, func(name string) bool { return !strings.EqualFold(name, vm) })
}

// isReady reports whether everything is done that must come before an acknowledgement.
// Nothing is acknowledged while a drain is under way: the event's effect on the VM could
// keep a job from being handed over.
func isReady(after preempt.Action, p lifecycle.Position, saved bool) bool {
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

// acknowledgement is how far the acknowledgement of an event is.
type acknowledgement int

const (
	notAsked  acknowledgement = iota
	asked                     // sent, or on its way
	byAnother                 // another worker of this VM sends it, or has sent it
	refused                   // the platform refused it; it is not sent again
)

// Progressed reports that an acknowledgement may be due: something was decided,
// saved or released. It does not wait.
func (r *Responder) Progressed() {
	select {
	case r.progress <- struct{}{}:
	default:
	}
}

// sendAcknowledgements records the events that this worker is ready for, and acknowledges
// events when all workers are, until ctx ends.
func (r *Responder) sendAcknowledgements(ctx context.Context) {
	for retry := time.Duration(0); ; {
		var again <-chan time.Time
		if retry > 0 {
			again = time.After(retry)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.progress:
		case <-again:
		}
		retry = r.acknowledgeReady(ctx)
	}
}

// acknowledgeReady acknowledges all events that it may, and returns after how long to try
// again; zero for never.
func (r *Responder) acknowledgeReady(ctx context.Context) (retry time.Duration) {
	r.mu.Lock()
	events := r.readyFor()
	r.mu.Unlock()
	err := r.recordReady(ctx, events)
	if r.logWaiting(ctx, preempt.Event{}, err); err != nil {
		return retryAcknowledge
	}
	for _, a := range events {
		before, ok := r.reserve(a.Event)
		if !ok {
			continue
		}
		err := r.askAll(ctx, a)
		if err == nil {
			r.send(ctx, a.Event)
			continue
		}
		if taken := errors.Is(err, vmshare.ErrTaken); taken && before == notAsked {
			before = byAnother
			r.Log.InfoContext(ctx, "event is acknowledged by another worker of this VM", "event_id", a.Event.ID, "event_type", a.Event.Type)
		} else if !taken {
			r.logWaiting(ctx, a.Event, err)
		}
		r.cancelReservation(a.Event, before)
		if after := r.retryAfter(a.Event); retry == 0 || after < retry {
			retry = after
		}
	}
	return retry
}

// reserve reports whether this worker is to acknowledge e now, and how far the
// acknowledgement was before. From here on e counts as acknowledged, and since it may
// then start at any moment, no work is taken under it.
func (r *Responder) reserve(e preempt.Event) (before acknowledgement, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready := slices.ContainsFunc(r.readyFor(), func(a preempt.Acknowledgement) bool { return a.Event.ID == e.ID })
	before = r.acknowledged[e.ID]
	if !ready || before != notAsked && before != byAnother || !r.Acknowledge.allows(e, r.identity) {
		return before, false
	}
	r.acknowledged[e.ID] = asked
	return before, true
}

// cancelReservation undoes reserve: others are not ready for e yet, or acknowledge it.
func (r *Responder) cancelReservation(e preempt.Event, before acknowledgement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acknowledged[e.ID] = before
	r.follow(r.decision, time.Now())
}

// askAll returns nil when every other worker that the event concerns is ready for
// it, on other VMs and on this one.
func (r *Responder) askAll(ctx context.Context, a preempt.Acknowledgement) error {
	if !namesAlone(a.Event, r.Identity().Name) {
		if err := r.askOtherVMs(ctx, a.Event); err != nil {
			return err
		}
	}
	if r.Runtime == nil {
		return nil
	}
	e := vmshare.Event{ID: a.Event.ID, NotBefore: a.Event.NotBefore}
	return r.Runtime.Acknowledge(ctx, e, a.After >= preempt.DrainBy)
}

func (r *Responder) send(ctx context.Context, e preempt.Event) {
	if err := r.Client.Acknowledge(ctx, e.ID); err != nil {
		r.giveUp(ctx, e, err)
		return
	}
	r.Observe(observe.Acknowledged{Result: observe.Accepted})
	r.Log.InfoContext(ctx, "event acknowledged; it may start at any moment", "event_id", e.ID, "event_type", e.Type)
}

// giveUp records that the platform refused the acknowledgement of e. It is not sent
// again, and the VM may have work until the event's time.
func (r *Responder) giveUp(ctx context.Context, e preempt.Event, err error) {
	if ctx.Err() != nil {
		return
	}
	r.Observe(observe.Acknowledged{Result: observe.RefusedByPlatform})
	r.Log.WarnContext(ctx, "event not acknowledged; it starts at its own time", "event_id", e.ID, "event_type", e.Type, "error", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acknowledged[e.ID] = refused
	r.decide()
}

// logWaiting logs whom the acknowledgement of e waits for when that changes, or for no
// event what keeps this worker from recording its ready events.
func (r *Responder) logWaiting(ctx context.Context, e preempt.Event, err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if ctx.Err() != nil || r.waiting[e.ID] == why {
		return
	}
	r.waiting[e.ID] = why
	switch {
	case err == nil:
		r.Log.InfoContext(ctx, "events that this worker is ready for are recorded again")
	case e.ID == "":
		r.Log.WarnContext(ctx, "events that this worker is ready for cannot be recorded; none is acknowledged until they are", "error", err)
	default:
		r.Log.InfoContext(ctx, "event not acknowledged yet", "event_id", e.ID, "event_type", e.Type, "reason", why)
	}
}
