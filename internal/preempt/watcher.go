package preempt

import (
	"context"
	"time"
)

// Watcher polls the scheduled events once a second and reports what it sees.
type Watcher struct {
	client *Client

	// Trace is told what the watcher does. To be set before Run.
	Trace Trace
}

// Trace is told what a [Watcher] does, as it does it: by its own goroutine, which
// none of the functions may hold up. Each may be nil.
type Trace struct {
	// Turned is told that the loop turned at now, and will again before within
	// is over, whatever becomes of the polls.
	Turned func(now time.Time, within time.Duration)

	// Polled is told how a poll ended, and when.
	Polled func(at time.Time, result PollResult)
}

func (t Trace) turned(now time.Time, within time.Duration) {
	if t.Turned != nil {
		t.Turned(now, within)
	}
}

func (t Trace) polled(a polled) {
	if t.Polled != nil {
		t.Polled(a.at, resultOf(a.err))
	}
}

// NewWatcher returns a watcher that asks through c.
func NewWatcher(c *Client) *Watcher { return &Watcher{client: c} }

// Run polls until ctx ends, from the first moment on, and calls report from its
// own goroutine with every observation: the first document, each one that
// differs from the last reported, and each change between seeing and being
// blind. Report must not block; polls wait for it. Run returns when every poll
// it started has ended.
//
// No poll waits for another: while an answer is missing the next polls are sent
// on time, or as soon as the budget allows where that is short. Answers count in the order in which they were asked for, so that a
// late one does not bring back an older state. A failed poll is repeated within
// two seconds, whatever the failure.
func (w *Watcher) Run(ctx context.Context, report func(Observation)) {
	polls := newPoller(w.client)
	defer polls.wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	start := time.Now()
	sight := sight{seenAt: start}
	pace := pace{next: start}
	for ctx.Err() == nil {
		now := time.Now()
		if polls.free() && pace.due(now) {
			polls.start(ctx, pace.sent(now), sight.known())
		}
		if o, news := sight.observe(now); news {
			report(o)
		}
		wait := min(pace.wait(now), sight.wait(now))
		w.Trace.turned(now, wait)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case a := <-polls.answers:
			polls.ended(a)
			w.Trace.polled(a)
			pace.answered(a, sight.take(a))
		case <-w.client.queued.left:
		case <-timer.C:
		}
		timer.Stop()
	}
}
