package notice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
)

// Options are the settings of a [Watcher]. The zero value is right on an Azure VM.
type Options struct {
	// Endpoint is the URL of the metadata service. Default [DefaultEndpoint].
	Endpoint string

	// VMName is the VM's name in events, in place of the name that the service gives: the
	// metadata's compute/name, not the host name. Default: the service is asked.
	VMName string

	// Logger receives a line when the service does not answer and when it answers again.
	// Default: none.
	Logger *slog.Logger
}

// Watcher polls the metadata service of this VM until it is closed. Its methods may be called
// from several goroutines, but each notice goes to one call of Wait.
type Watcher struct {
	client *preempt.Client
	log    *slog.Logger
	stop   context.CancelCauseFunc
	ended  sync.WaitGroup
	done   <-chan struct{}
	news   chan struct{} // holds one: there may be another notice

	mu       sync.Mutex // guards what follows
	self     preempt.Identity
	nameless bool              // the service was asked for the VM's name, and did not give it
	document *preempt.Document // nil before the first
	current  Notice
	given    Notice      // by Wait
	again    *time.Timer // decides again on the same document
	silent   time.Time   // since when the service has not answered; zero while it does
}

var errClosed = errors.New("notice: the watcher is closed")

// New returns a watcher that polls already. The error is about the options.
func New(o Options) (*Watcher, error) {
	endpoint := cmp.Or(o.Endpoint, DefaultEndpoint)
	client, err := preempt.NewClient(endpoint)
	if err != nil {
		return nil, fmt.Errorf("notice: %q: %w", endpoint, err)
	}
	return newWatcher(client, o), nil
}

func newWatcher(client *preempt.Client, o Options) *Watcher {
	ctx, stop := context.WithCancelCause(context.Background())
	w := &Watcher{
		client: client, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), stop: stop, done: ctx.Done(), news: make(chan struct{}, 1),
		self: preempt.Identity{Name: o.VMName}, again: time.NewTimer(time.Hour),
	}
	w.again.Stop()
	w.ended.Go(func() { preempt.NewWatcher(client).Run(ctx, w.observe) })
	w.ended.Go(func() { w.decideAgain(ctx) })
	if o.VMName == "" {
		w.ended.Go(func() { w.discover(ctx) })
	}
	return w
}

// Close ends the polls and all calls of Wait.
func (w *Watcher) Close() {
	w.stop(errClosed)
	w.ended.Wait()
	w.again.Stop()
	w.client.Close()
}

// Wait waits for a notice that differs from the notice that it returned last, and returns the newest.
// It returns none while no event was ever announced. The error is the cause of ctx, or says that the watcher is closed.
func (w *Watcher) Wait(ctx context.Context) (Notice, error) {
	for {
		if n, ok := w.next(); ok {
			return n, nil
		}
		select {
		case <-ctx.Done():
			return Notice{}, context.Cause(ctx)
		case <-w.done:
			return Notice{}, errClosed
		case <-w.news:
		}
	}
}

// next returns the notice that was not given yet.
func (w *Watcher) next() (Notice, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current.same(w.given) {
		return Notice{}, false
	}
	w.given = w.current
	return w.current, true
}

// sameTime is how far two readings of one deadline may differ: the service's clock is known to a
// second.
const sameTime = 3 * time.Second

// same reports whether two notices ask for the same, by the same time, because of the same event.
func (n Notice) same(other Notice) bool {
	return n.Action == other.Action && n.EventID == other.EventID && n.Status == other.Status &&
		n.Deadline.Sub(other.Deadline).Abs() < sameTime
}

// Acknowledge lets the event of a notice start now, before its time: for all VMs that the event
// names. Call it when this program, and every other one of these VMs that uses them, is ready.
// An event that is over meanwhile is no error. The error says so if the notice has no event that
// waits for it; others come from the service or the connection, after four attempts.
func (w *Watcher) Acknowledge(ctx context.Context, n Notice) error {
	if !n.MayStartEarly {
		return fmt.Errorf("notice: %s does not wait to be acknowledged", cmp.Or(n.Type, "a notice without an event"))
	}
	err := w.client.Acknowledge(ctx, n.EventID)
	if status, ok := errors.AsType[*preempt.StatusError](err); ok && status.Status == http.StatusBadRequest {
		return nil
	}
	return err
}

// SilentSince returns since when the service has not answered: an eviction may go unnoticed. It
// is zero while the service answers, and for the first five seconds of a silence.
func (w *Watcher) SilentSince() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.silent
}

// discover asks for the VM's name.
func (w *Watcher) discover(ctx context.Context) {
	logged := false
	self, err := w.client.Discover(ctx, func(err error) {
		if !logged {
			w.log.WarnContext(ctx, "metadata service does not say what this VM is; trying again", "error", err)
		}
		logged = true
		w.mu.Lock()
		defer w.mu.Unlock()
		w.nameless = true
		w.decide()
	})
	if err != nil {
		return // ctx ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.self = self
	w.decide()
}

// observe takes an observation of the poll loop, which must not be held up.
func (w *Watcher) observe(o preempt.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case o.Blind() && w.silent.IsZero():
		w.log.Warn("metadata service is unavailable; an eviction would come without notice", "since", o.BlindSince, "error", o.Err)
	case !o.Blind() && !w.silent.IsZero():
		w.log.Info("metadata service answers again", "after", o.At.Sub(w.silent))
	}
	w.silent = o.BlindSince
	if o.Changed {
		w.document = &o.Document
		w.decide()
	}
}

// decideAgain decides again when the timer is due, until ctx ends.
func (w *Watcher) decideAgain(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.again.C:
			w.mu.Lock()
			w.decide()
			w.mu.Unlock()
		}
	}
}

// decide makes the current notice from the last document. The caller holds mu.
func (w *Watcher) decide() {
	if w.document == nil || w.self.Name == "" && !w.nameless {
		return // the first document, or the name, decides
	}
	now := time.Now()
	d := preempt.Decide(*w.document, w.self, w.document.Now(now))
	w.again.Stop()
	wait := d.Again
	if departs, ok := d.Departure(); ok {
		wait = departs.Budget - preempt.DrainMargin
	}
	if wait > 0 {
		w.again.Reset(wait)
	}
	n := noticeOf(d.Verdict, now)
	if n.Action == Leave && w.current.Action == Leave && w.current.Deadline.Before(n.Deadline) {
		n.Deadline = w.current.Deadline // the time that is left does not grow
	}
	w.current = n
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// noticeOf returns the notice of a verdict made at the local time now.
func noticeOf(v preempt.Verdict, now time.Time) Notice {
	n := Notice{EventID: v.Event.ID, Type: v.Event.Type, Status: v.Event.Status, MayStartEarly: v.Acknowledge, Reason: v.Reason}
	switch v.Action {
	case preempt.CarryOn:
		n.Action = Continue
	case preempt.CheckpointNow:
		n.Action = Save
	case preempt.DrainBy:
		n.Action, n.Deadline = LeaveLater, now.Add(v.Budget)
	case preempt.Drain:
		n.Action, n.Deadline = Leave, now.Add(v.Budget)
	}
	return n
}
