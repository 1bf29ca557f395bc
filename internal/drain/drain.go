package drain

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/job"
)

const (
	// OneJobGrace is how long a handler may take to return when its job alone was
	// stopped.
	OneJobGrace = 5 * time.Second

	// OneJobStates is how long the last state of such a job may be sent, as long as
	// the worker does not stop.
	OneJobStates = time.Minute
)

// Drain says why work stops and by when. It is the cause with which the context of
// the work is cancelled, and implements error for that.
type Drain struct {
	Reason job.Reason
	Seen   time.Time // when the notice was seen
	OneJob bool      // one job is stopped for a reason of its own; the worker continues

	err       error
	notBefore time.Time // see [job.Stop]

	mu       sync.Mutex
	schedule Schedule
	changed  chan struct{} // closed when the schedule is shortened
}

// Schedule holds the deadlines of a drain.
type Schedule struct {
	Handlers time.Time // handlers return
	States   time.Time // states are sent; after it records are written without them
	End      time.Time // everything is released
}

// New returns a drain of the whole worker that began at seen and may take budget.
func New(reason job.Reason, err error, seen time.Time, budget time.Duration) *Drain {
	return &Drain{
		Reason: reason, err: err, Seen: seen, changed: make(chan struct{}),
		schedule: Schedule{Handlers: seen.Add(budget / 2), States: seen.Add(budget * 3 / 4), End: seen.Add(budget)},
	}
}

// ForNotice returns the drain that a notice calls for.
func ForNotice(n preempt.Notice) *Drain {
	d := New(job.Evicted, &preempt.Error{Notice: n}, n.SeenAt, n.Deadline.Sub(n.SeenAt))
	d.notBefore = n.NotBefore
	return d
}

// ForJob returns the drain of one job that is stopped at now for a reason of its
// own.
func ForJob(reason job.Reason, err error, now time.Time) *Drain {
	return &Drain{
		Reason: reason, err: err, Seen: now, OneJob: true, changed: make(chan struct{}),
		schedule: Schedule{Handlers: now.Add(OneJobGrace), States: now.Add(OneJobStates), End: now.Add(OneJobStates)},
	}
}

// Schedule returns the deadlines as they are now, and a channel that is closed
// when they are shortened.
func (d *Drain) Schedule() (Schedule, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.schedule, d.changed
}

// End returns the deadline of everything.
func (d *Drain) End() time.Time {
	s, _ := d.Schedule()
	return s.End
}

// shorten applies those deadlines of limit that are earlier, and reports whether
// any was.
func (d *Drain) shorten(limit Schedule) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	shortened := d.schedule.earliest(limit)
	if shortened == d.schedule {
		return false
	}
	d.schedule = shortened
	close(d.changed)
	d.changed = make(chan struct{})
	return true
}

// earliest returns the earlier of each deadline.
func (s Schedule) earliest(limit Schedule) Schedule {
	return Schedule{
		Handlers: earlier(s.Handlers, limit.Handlers), States: earlier(s.States, limit.States), End: earlier(s.End, limit.End),
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Stop returns the drain as handlers see it, with the deadline as it is now.
func (d *Drain) Stop() *job.Stop {
	s, _ := d.Schedule()
	return &job.Stop{Reason: d.Reason, Deadline: s.Handlers, NotBefore: d.notBefore, Err: d.err}
}

func (d *Drain) Error() string { return d.Stop().Error() }

// Unwrap lets a handler find the [job.Stop] in its context's cause.
func (d *Drain) Unwrap() error { return d.Stop() }

// Of returns the drain that stopped ctx, or nil.
func Of(ctx context.Context) *Drain {
	if d, ok := errors.AsType[*Drain](context.Cause(ctx)); ok {
		return d
	}
	return nil
}

// StopOf returns why ctx was stopped. A context that ended without a drain counts
// as a shutdown whose deadline is now.
func StopOf(ctx context.Context) *job.Stop {
	if stop := job.StopOf(ctx); stop != nil {
		return stop
	}
	return &job.Stop{Reason: job.Shutdown, Deadline: time.Now(), Err: context.Cause(ctx)}
}

// Set holds all active drains: the worker's own, and drains of single jobs. The earliest
// deadlines of the worker's drains apply to all of them. The zero value is empty.
type Set struct {
	mu     sync.Mutex
	drains []*Drain
	limit  *Schedule // of the worker's own drains together; nil before the first
}

// Add adds the drain of a single job, and shortens it to the schedule of a drain
// of the worker that began before.
func (s *Set) Add(d *Drain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit != nil {
		d.shorten(*s.limit)
	}
	s.drains = append(s.drains, d)
}

// Remove removes the drain of a single job.
func (s *Set) Remove(d *Drain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drains = slices.DeleteFunc(s.drains, func(other *Drain) bool { return other == d })
}

// Impose adds a drain of the worker and shortens all others to its schedule. It
// reports whether one was shortened.
func (s *Set) Impose(d *Drain) (shortened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit, _ := d.Schedule()
	if s.limit != nil {
		limit = limit.earliest(*s.limit)
	}
	s.limit = &limit
	for _, other := range s.drains {
		if other.shorten(limit) {
			shortened = true
		}
	}
	d.shorten(limit)
	s.drains = append(s.drains, d)
	return shortened
}

// Reset removes all drains. The worker calls it when it takes up work.
func (s *Set) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drains, s.limit = nil, nil
}

// Len returns how many drains are active.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.drains)
}
