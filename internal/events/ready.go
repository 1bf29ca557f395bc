package events

import (
	"context"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/fleet/vmshare"
	"github.com/spotworker/spotworker/internal/preempt"
)

// settlePatience is how long a worker takes no work because it, or another one of
// its VM, left for an event that may still stand: as long as the metadata service
// may take for its first answer.
const settlePatience = 2*time.Minute + 5*time.Second

// readyList holds events that something was done for. It covers an event only at the time
// that it had then: an event that was postponed since leaves time to work.
type readyList []presence.Ready

func (l readyList) covers(e preempt.Event) bool {
	return slices.ContainsFunc(l, func(r presence.Ready) bool { return r.Covers(e.ID, e.NotBefore) })
}

func (l *readyList) add(e preempt.Event) { l.put(presence.Ready{ID: e.ID, NotBefore: e.NotBefore}) }

func (l *readyList) put(r presence.Ready) {
	if !slices.Contains(*l, r) {
		*l = append(*l, r)
	}
}

// FromFolder returns the events that a runtime directory lists.
func FromFolder(events []vmshare.Event) []presence.Ready {
	var l readyList
	for _, e := range events {
		l.put(presence.Ready{ID: e.ID, NotBefore: e.NotBefore})
	}
	return l
}

func (l readyList) inFolder() (events []vmshare.Event) {
	for _, r := range l {
		events = append(events, vmshare.Event{ID: r.ID, NotBefore: r.NotBefore})
	}
	return events
}

// readyFor returns the events that may start early as far as this worker goes: it has
// done its part for them. The caller holds mu.
func (r *Responder) readyFor() (events []preempt.Acknowledgement) {
	position := r.Worker.Position()
	for _, a := range r.decision.Acknowledgements() {
		if isReady(a.After, position, r.isSaved(a.Event)) {
			events = append(events, a)
		}
	}
	return events
}

// Ready returns the events that this worker is ready for, as a heartbeat lists them.
// Before the first decision they are the events of its last run.
func (r *Responder) Ready() []presence.Ready {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !isClosed(r.decided) {
		return slices.Clone(r.left)
	}
	return slices.Clone(r.ready)
}

// AddLeft adds events that an earlier run of this worker, or another worker of this VM,
// was ready for. The worker takes no work under an event that still stands with time
// left: it may have been acknowledged.
func (r *Responder) AddLeft(events []presence.Ready) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		r.left.put(e)
	}
	r.follow(r.decision, time.Now())
}

// WaitSettled waits until it is known whether an event that was left for still
// stands, settlePatience at most.
func (r *Responder) WaitSettled(ctx context.Context) {
	r.mu.Lock()
	open := len(r.left) > 0 && !isClosed(r.decided)
	r.mu.Unlock()
	if !open || r.Client == nil {
		return
	}
	r.Log.WarnContext(ctx, "an event that this worker drained for may still stand; no job is taken until the metadata service tells",
		"at_most", settlePatience)
	waitFor(ctx, r.decided, settlePatience)
}

// recordReady records the events that this worker is ready for where they outlive
// it and others see them: in the heartbeat and in the runtime directory. It comes
// before an acknowledgement.
func (r *Responder) recordReady(ctx context.Context, events []preempt.Acknowledgement) error {
	var now readyList
	for _, a := range events {
		now.add(a.Event)
	}
	r.mu.Lock()
	r.ready = now
	known := slices.Equal(r.recorded, now)
	r.mu.Unlock()
	if known {
		return nil
	}
	if err := r.Worker.WriteHeartbeat(ctx); err != nil {
		return err
	}
	if r.Runtime != nil && len(now) > 0 {
		if err := r.Runtime.Ready(ctx, now.inFolder()); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorded = now
	return nil
}
