package preempt

import (
	"context"
	"time"
)

// Watcher polls the scheduled events once a second and reports what it sees.
type Watcher struct {
	client *Client
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
// on time. Answers count in the order in which they were asked for, so that a
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
		timer := time.NewTimer(min(pace.wait(now), sight.wait(now)))
		select {
		case <-ctx.Done():
		case a := <-polls.answers:
			polls.ended(a)
			pace.answered(a, sight.take(a))
		case <-timer.C:
		}
		timer.Stop()
	}
}
