package preempt

import (
	"context"
	"time"
)

// Watcher polls the scheduled events once a second and reports changes.
type Watcher struct {
	client *Client

	// Trace has hooks for health checks and metrics. Set it before Run.
	Trace Trace
}

// Trace holds the hooks of a [Watcher]. It calls them on its own goroutine, so they
// must not block. Each may be nil.
type Trace struct {
	// Turned is called for each iteration of the loop. The next one follows within
	// that time, whether polls are answered or not.
	Turned func(now time.Time, within time.Duration)

	// Polled is called when a poll has ended.
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

// NewWatcher returns a watcher that uses c.
func NewWatcher(c *Client) *Watcher { return &Watcher{client: c} }

// Run polls until ctx ends, and calls report from its own goroutine with every
// observation: the first document, each later document that differs, and each begin
// and end of blindness. Report must not block, because polls wait for it. Run returns
// when all its polls have ended.
//
// No poll waits for another: while an answer is missing the next polls are sent on
// time, or as soon as the budget allows. Answers count in the order of the requests, so
// that a late one does not bring back an older state. A failed poll is repeated within
// two seconds, for any error. While no answer comes in time, the two versions take
// turns, and each has one poll in flight that waits longer.
func (w *Watcher) Run(ctx context.Context, report func(Observation)) {
	polls := newPoller(w.client)
	defer polls.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	start := time.Now()
	seen := watchState{answeredAt: start}
	next := schedule{next: start}
	for ctx.Err() == nil {
		now := time.Now()
		if polls.free() && next.due(now) {
			if polls.hasRoom() && w.client.version.triesNewest(now) {
				polls.start(ctx, request{number: next.send(now), version: w.client.version.newest})
			}
			doubtful := seen.inDoubt(now)
			polls.start(ctx, request{
				number: next.send(now), version: w.client.version.forPoll(doubtful),
				doubtful: doubtful, blind: !seen.hasDocument() || seen.isBlind(now),
			})
		}
		if o, news := seen.observe(now); news {
			report(o)
		}
		wait := min(next.untilDue(now), seen.untilNews(now))
		w.Trace.turned(now, wait)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case a := <-polls.answers:
			polls.received(a)
			w.Trace.polled(a)
			w.chooseVersion(a, seen.inDoubt(a.at))
			next.answered(a, seen.add(a))
		case <-w.client.queued.left:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// chooseVersion makes the version of an answer the one in use, if the answer was quick
// enough for a poll a second, or the version in use is in doubt. The older version has to
// be in use, or asked in doubt: it also answers while the newest one works.
func (w *Watcher) chooseVersion(a polled, inDoubt bool) {
	quick := a.err == nil && a.took < pollInterval && (a.doubtful || a.version == w.client.version.newest)
	if quick || inDoubt && a.isPrompt() {
		w.client.version.use(a.version, a.at)
	}
}
