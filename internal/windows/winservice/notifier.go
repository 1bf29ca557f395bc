package winservice

import (
	"context"
	"sync"
	"time"
)

// Notifier takes a worker's state to the service that runs it. It is used as the
// notifier of systemd is.
type Notifier struct {
	drainBudget time.Duration
	healthy     func() bool
	ready       chan<- *Notifier
	stopping    chan struct{}
	once        sync.Once
}

// Run reports that the worker is up, and waits for the end of ctx.
func (n *Notifier) Run(ctx context.Context) {
	select {
	case n.ready <- n:
	case <-ctx.Done():
		return
	}
	<-ctx.Done()
}

// Stopping reports that the worker was asked to end. It does not wait.
func (n *Notifier) Stopping() { n.once.Do(func() { close(n.stopping) }) }

// Changed does nothing: a service of Windows has no text to show.
func (n *Notifier) Changed() {}

// watch judges the health of a worker.
type watch struct {
	unhealthySince time.Time // zero while it is healthy
}

// overdue reports whether the worker has been unhealthy for so long that only a new
// process can help.
func (w *watch) overdue(healthy bool, now time.Time) bool {
	switch {
	case healthy:
		w.unhealthySince = time.Time{}
	case w.unhealthySince.IsZero():
		w.unhealthySince = now
	}
	return !healthy && now.Sub(w.unhealthySince) >= unhealthyLimit
}
