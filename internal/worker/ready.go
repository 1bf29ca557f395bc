package worker

import (
	"context"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/presence"
	"github.com/spotworker/spotworker/internal/runtimedir"
)

// rememberPatience is how long a worker takes no work because it, or another one
// of its VM, left for an event of which it is not known whether it still stands:
// as long as the metadata service may take for its first answer.
const rememberPatience = 2*time.Minute + 5*time.Second

// readyList are events that something was done for. One that was put off since is
// another matter: the time won is there to be used.
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

// readyFor returns the events that need not wait for their time, as far as this
// worker goes: it has done what they call for. The caller holds mu.
func (w *watch) readyFor() (events []preempt.Acknowledgement) {
	position := w.worker.machine.Position()
	for _, a := range w.decision.Acknowledgements() {
		if ready(a.After, position, w.isSaved(a.Event)) {
			events = append(events, a)
		}
	}
	return events
}

// readyEvents returns what a presence says: the events that this worker is ready for, and
// before the first judgement those that its last run was.
func (w *watch) readyEvents() []presence.Ready {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !isClosed(w.decided) {
		return slices.Clone(w.left)
	}
	return slices.Clone(w.ready)
}

// addLeft takes note of events that an earlier run of this worker, or another
// worker of this VM, was ready for. One with a later time that still stands is not
// one to take work under: it may have been acknowledged.
func (w *watch) addLeft(events []presence.Ready) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		w.left.put(e)
	}
	w.follow(w.decision, time.Now())
}

// waitSettled returns when it is known whether an event that was left for stands, or
// after a while.
func (w *watch) waitSettled(ctx context.Context) {
	w.mu.Lock()
	open := len(w.left) > 0 && !isClosed(w.decided)
	w.mu.Unlock()
	if !open || w.worker.Metadata == nil {
		return
	}
	w.worker.Log.WarnContext(ctx, "work was left for an event; taking none until it is known whether that still stands", "at_most", rememberPatience)
	waitFor(ctx, w.decided, rememberPatience)
}

// record writes down the events that this worker is ready for, where that outlives
// it: before one is acknowledged, and for whoever acknowledges for several VMs.
func (w *watch) record(ctx context.Context, events []preempt.Acknowledgement) error {
	var now readyList
	for _, a := range events {
		now.add(a.Event)
	}
	w.mu.Lock()
	w.ready = now
	known := slices.Equal(w.recorded, now)
	w.mu.Unlock()
	if known {
		return nil
	}
	if err := w.worker.heartbeat.publish(ctx); err != nil {
		return err
	}
	if dir := w.worker.Runtime; dir != nil && len(now) > 0 {
		if err := dir.Ready(ctx, inFolder(now)); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recorded = now
	return nil
}

func inFolder(l readyList) (events []runtimedir.Event) {
	for _, r := range l {
		events = append(events, runtimedir.Event{ID: r.ID, NotBefore: r.NotBefore})
	}
	return events
}

func fromFolder(events []runtimedir.Event) (l readyList) {
	for _, e := range events {
		l.put(presence.Ready{ID: e.ID, NotBefore: e.NotBefore})
	}
	return l
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
