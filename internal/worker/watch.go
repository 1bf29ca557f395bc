package worker

import (
	"context"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
)

// watch turns what the metadata service says into notices and withdrawals. The
// watcher reports, preempt.Decide judges, the worker acts; this is the wire
// between them.
type watch struct {
	worker *Worker
	known  chan struct{} // closed when the identity is known
	judged chan struct{} // closed when the first document was judged

	mu       sync.Mutex
	identity preempt.Identity
	document *preempt.Document // the last one; nil before the first
	standing bool              // a notice was given and not withdrawn
}

func newWatch(w *Worker) *watch {
	return &watch{worker: w, known: make(chan struct{}), judged: make(chan struct{})}
}

// run polls from the first moment, and finds out this VM's name meanwhile,
// until ctx ends.
func (w *watch) run(ctx context.Context) {
	client := w.worker.Metadata
	if client == nil {
		return
	}
	defer client.Close()
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { preempt.NewWatcher(client).Run(ctx, w.observe) })
	both.Go(func() { w.discover(ctx, client) })
}

func (w *watch) discover(ctx context.Context, client *preempt.Client) {
	told := false
	identity, err := client.Discover(ctx, func(err error) {
		if !told {
			w.worker.Log.WarnContext(ctx, "name of this VM is not known; notices cannot be recognised until it is", "error", err)
		}
		told = true
	})
	if err != nil {
		return // ctx ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.identity = identity
	close(w.known)
	w.worker.Log.InfoContext(ctx, "name of this VM is known", "vm", identity.Name, "scale_set", identity.ScaleSet, "priority", identity.Priority)
	w.judge()
}

// observe is called by the watcher; it must not block.
func (w *watch) observe(o preempt.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case o.Changed:
		w.document = &o.Document
		w.judge()
	case o.Blind():
		w.worker.Log.Warn("metadata service gives no answer; an eviction would come without notice", "since", o.BlindSince, "error", o.Err)
	default:
		w.worker.Log.Info("metadata service answers again")
	}
}

// judge decides on the last document. The caller holds mu.
func (w *watch) judge() {
	if w.document == nil || w.identity.Name == "" {
		return
	}
	now := time.Now()
	decision := preempt.Decide(*w.document, w.identity, w.document.Now(now))
	for _, v := range decision.Verdicts {
		w.worker.Log.Info("scheduled event names this VM", "event_id", v.Event.ID, "type", v.Event.Type,
			"status", v.Event.Status, "not_before", v.Event.NotBefore, "action", v.Action.String(), "reason", v.Reason)
	}
	drain := decision.Action == preempt.Drain
	switch {
	case drain && !w.standing:
		w.worker.evict(decision.Notice(now))
	case !drain && w.standing:
		w.worker.withdraw()
	}
	w.standing = drain
	select {
	case <-w.judged:
	default:
		close(w.judged)
	}
}

// first waits until it is known whether an event is announced already, at most
// for patience: the service's first answer may take two minutes.
func (w *watch) first(ctx context.Context, patience time.Duration) {
	if w.worker.Metadata != nil {
		wait(ctx, w.judged, patience)
	}
}

// name waits for this VM's name, at most for patience. It returns what is known.
func (w *watch) name(ctx context.Context, patience time.Duration) preempt.Identity {
	wait(ctx, w.known, patience)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.identity
}

// wait returns when done is closed, ctx ends, or patience is over.
func wait(ctx context.Context, done <-chan struct{}, patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}
