package hedge

import (
	"context"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/ordered"
)

// unlimited is the limit of a try that has none: its call has a deadline of its own.
const unlimited = 24 * time.Hour

// try is one try that waits for its answer.
type try struct {
	ordered.Item
	tries *Tries
	cut   context.CancelCauseFunc
	begun time.Time

	// The rest is guarded by the watch.
	due      time.Time     // when it is cut off
	timeout  time.Time     // when its timeout ends
	answer   bool          // it was answered, and its body is being read
	tooShort time.Duration // its limit while time is short; 0 if that is not what ends it
}

// watch cuts off the tries of all callers whose time becomes short at the same moment.
// One timer serves all of them.
type watch struct {
	short context.Context //nolint:containedctx // only its end is used

	mu    sync.Mutex
	tries ordered.Heap[*try] // the next to be cut off first
	timer *time.Timer
	armed time.Time // the timer's time; zero if it is not set
}

func newWatch(short context.Context) *watch {
	w := &watch{short: short, tries: ordered.NewHeap(func(a, b *try) bool { return a.due.Before(b.due) })}
	context.AfterFunc(short, w.hurry)
	return w
}

// add adds a try that begins now and has a timeout; 0 is none.
func (w *watch) add(t *try, timeout time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if timeout == 0 {
		timeout = unlimited
	}
	t.timeout = t.begun.Add(timeout)
	w.schedule(t, w.short.Err() != nil, t.begun)
	w.arm()
}

// schedule adds a try to the tries that are cut off, given whether time is short. The
// caller holds mu.
func (w *watch) schedule(t *try, short bool, now time.Time) {
	t.due, t.tooShort = t.timeout, 0
	if short && !t.answer {
		if limit := t.tries.limit(); now.Add(limit).Before(t.timeout) {
			t.due, t.tooShort = now.Add(limit), limit
		}
	}
	w.tries.Add(t)
}

// arm sets the timer for the next try, unless it fires earlier anyway: most tries have
// ended by then. The caller holds mu.
func (w *watch) arm() {
	if w.tries.Len() == 0 {
		return
	}
	next := w.tries.First().due
	if !w.armed.IsZero() && !next.Before(w.armed) {
		return
	}
	w.armed = next
	if w.timer == nil {
		w.timer = time.AfterFunc(time.Until(next), w.fire)
	} else {
		w.timer.Reset(time.Until(next))
	}
}

// fire cuts off the tries that are due.
func (w *watch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = time.Time{}
	for now := time.Now(); w.tries.Len() > 0 && !now.Before(w.tries.First().due); {
		t := w.tries.TakeFirst()
		if t.tooShort > 0 {
			t.cut(&unansweredError{t.tooShort})
		} else {
			t.cut(context.DeadlineExceeded)
		}
	}
	w.arm()
}

// hurry limits the tries in flight, since time is short from now on.
func (w *watch) hurry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, all := time.Now(), make([]*try, 0, w.tries.Len())
	for w.tries.Len() > 0 {
		all = append(all, w.tries.TakeFirst())
	}
	for _, t := range all {
		w.schedule(t, true, now)
	}
	w.arm()
}

// answered records that a try was answered: only its timeout limits the body that follows.
func (w *watch) answered(t *try) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.answer = true
	if t.InHeap() && t.tooShort > 0 {
		w.tries.Remove(t)
		w.schedule(t, false, t.begun)
	}
}

// remove removes a try that has ended.
func (w *watch) remove(t *try) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.InHeap() {
		w.tries.Remove(t)
	}
}
