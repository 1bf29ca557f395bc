package renewal

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/drain/ordered"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/outage"
)

const (
	// Timeout bounds one renewal. The next is tried soon after.
	Timeout = 8 * time.Second

	// renewRetry is the wait after a renewal that failed. With a short visibility timeout
	// it is half the time between two renewals, so that several tries fit into the rest.
	renewRetry = 2 * time.Second

	// renewGrace is how long a renewal under way may finish once it is not needed
	// any more, within the drain's time. A renewal that is cut off leaves it in
	// doubt whether the pop receipt is valid.
	renewGrace = time.Second

	// lostShare is the share of the visibility timeout, drain.OneJobGrace at most,
	// that a job whose pop receipt is void stops before its message may become
	// visible, so that its record is open by then.
	lostShare = 6
)

const (
	// parallelRenewals is how many renewals run at once, as long as they are answered
	// soon: see drain.Gate.
	parallelRenewals = 16

	// spreadFrom is the number of messages from which on the first renewals are spread
	// out: the renewals of messages that were claimed together would otherwise come
	// together, every time.
	spreadFrom = 64

	// mostOfMean bounds the renewals that begin in a second, as a multiple of the mean:
	// after an outage, or a time without a processor, many are due at once, and would be
	// so in every period after that. lateShare is the share of the shortest period by
	// which a renewal may be late for that: a visibility timeout is three of them.
	mostOfMean = 1.6
	lateShare  = 0.5

	// renewalsAtOnce is how many renewals may begin together within that bound: the number
	// of messages of a batch, and as many as are due in leastPause.
	renewalsAtOnce = 32
	leastPause     = 50 * time.Millisecond

	// spreadShare is the share of the time until a renewal by which it comes earlier at
	// most.
	spreadShare = 0.8
)

// Set renews messages. One timer serves all of them:
// a message takes a goroutine only while a call for it is in flight.
type Set struct {
	pace *pace
	gate *drain.Gate

	mu     sync.Mutex
	due    ordered.Heap[*Renewal] // the renewals that wait; the next one first
	timer  *time.Timer            // for the next one
	active int                    // messages, including messages with a call in flight
	added  int                    // messages ever
	ahead  time.Time              // when the renewals that have begun would all have, one after the other at the bound
}

// Renewal keeps one message hidden while its job runs.
type Renewal struct {
	set     *Set
	lease   *queue.Lease
	log     *slog.Logger
	work    context.Context // ends when the job has to stop
	cleanup context.Context // bounds every call
	lost    func(error)

	// The rest is guarded by set.mu.
	ordered.Item
	due      time.Time
	punctual bool               // its job has to stop when it is due
	stopped  bool               // no further call begins
	cancel   context.CancelFunc // ends the call in flight; nil without one
	ended    chan struct{}      // closed when the call in flight has ended; nil without a waiter
}

// NewSet returns a set that asks for least as long as nothing is throttled.
func NewSet(least time.Duration) *Set {
	return &Set{
		pace: newPace(least), gate: drain.NewGate(parallelRenewals),
		due: ordered.NewHeap(func(a, b *Renewal) bool { return a.due.Before(b.due) }),
	}
}

// Start renews the lease until the renewal is stopped or cleanup ends. When another
// worker has the message it calls lost, once, and ends. A renewal that fails is
// retried: the record decides who may write, not the message. Once work has ended the
// message is about to be released, and such a failure is no warning.
func (s *Set) Start(work, cleanup context.Context, lease *queue.Lease, log *slog.Logger, lost func(error)) *Renewal {
	r := &Renewal{set: s, lease: lease, log: log, work: work, cleanup: cleanup, lost: lost}
	now := time.Now()
	_, after := s.pace.current(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active++
	s.added++
	r.due = firstRenewal(lease.AskedAt, now, after, s.active, s.added)
	s.due.Add(r)
	s.arm()
	return r
}

// firstRenewal returns when the n-th message is renewed first that was claimed at asked,
// while so many are active. The first renewals of many messages are spread out, as long
// as that makes none overdue: by the fractions of multiples of the golden ratio, which
// fill a period evenly however many there are.
func firstRenewal(asked, now time.Time, after time.Duration, active, n int) time.Time {
	due := asked.Add(after)
	if active < spreadFrom {
		return due
	}
	const golden = 0.6180339887498949
	part := golden * float64(n)
	earlier := due.Add(-time.Duration(spreadShare * (part - float64(int(part))) * float64(after)))
	if earlier.Before(now) {
		return due
	}
	return earlier
}

// arm sets the timer for the next renewal. The caller holds mu.
func (s *Set) arm() {
	if s.due.Len() == 0 {
		if s.timer != nil {
			s.timer.Stop()
		}
		return
	}
	wait := time.Until(s.due.First().due)
	if s.timer == nil {
		s.timer = time.AfterFunc(wait, s.fire)
	} else {
		s.timer.Reset(wait)
	}
}

// mayBegin reports whether a renewal that is due may begin at now, within the bound of
// renewals in a second, and counts it then. The caller holds mu.
func (s *Set) mayBegin(r *Renewal, now time.Time) bool {
	_, after := s.pace.current(now)
	most := time.Duration(lateShare * float64(s.pace.least/renewShare))
	if s.active < spreadFrom || r.punctual || now.Sub(r.due) >= most {
		return true
	}
	each := time.Duration(float64(after) / mostOfMean / float64(s.active))
	if s.ahead.Before(now) {
		s.ahead = now
	}
	if s.ahead.Sub(now) > max(renewalsAtOnce*each, leastPause) {
		return false
	}
	s.ahead = s.ahead.Add(each)
	return true
}

// fire begins the renewals that are due, as many as the gate admits. The other renewals
// wait without a goroutine, until a call has ended or leastPause is over.
func (s *Set) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for now := time.Now(); s.due.Len() > 0 && !now.Before(s.due.First().due); {
		if s.due.First().cleanup.Err() != nil {
			s.due.TakeFirst() // no call may begin
			continue
		}
		leave, ok := s.gate.TryEnter(0)
		if ok && !s.mayBegin(s.due.First(), now) {
			leave()
			ok = false
		}
		if !ok {
			s.timer.Reset(leastPause)
			return
		}
		r := s.due.TakeFirst()
		ctx, cancel := context.WithTimeout(r.cleanup, Timeout)
		r.cancel = cancel
		go r.run(ctx, leave)
	}
	s.arm()
}

// run makes one renewal, and waits for the next. leave leaves the gate.
func (r *Renewal) run(ctx context.Context, leave func()) {
	next, punctual, err := r.renew(ctx)
	leave()
	if err != nil {
		r.lost(err)
	}
	s := r.set
	s.mu.Lock()
	defer s.mu.Unlock()
	r.cancel()
	r.cancel = nil
	if r.ended != nil {
		close(r.ended)
	}
	if !r.stopped && err == nil && r.cleanup.Err() == nil {
		r.due, r.punctual = next, punctual
		s.due.Add(r)
	}
	s.arm() // also for a renewal that waits for the gate
}

// renew makes one call, and returns when the next is due, and whether that must not be
// late. The error says that another worker has the message.
func (r *Renewal) renew(ctx context.Context) (next time.Time, punctual bool, lost error) {
	if r.isStopped() {
		return time.Time{}, false, nil // it is no longer needed
	}
	pace := r.set.pace
	asked := time.Now()
	visibility, after := pace.current(asked)
	switch err := r.lease.Renew(ctx, visibility); {
	case errors.Is(err, queue.ErrLost):
		until := keepUntil(r.lease.DoubtfulUntil(), visibility)
		if !time.Now().Before(until) {
			return time.Time{}, false, err
		}
		r.log.WarnContext(ctx, "renewal refused after one without an answer; the job is handed over shortly before its message "+
			"may become visible", "until", until, "error", err)
		return until, true, nil
	case err != nil && (r.isStopped() || r.cleanup.Err() != nil):
		return time.Time{}, false, nil //nolint:nilerr // cut off: it is no longer needed
	case err != nil:
		if queue.TooFast(err) {
			pace.observe(time.Now(), true)
		}
		retryIn := min(renewRetry, after/2)
		level := outage.Level(err, slog.LevelWarn)
		if r.work.Err() != nil {
			level = slog.LevelDebug // a drain cuts tries short; the release comes next
		}
		r.log.Log(ctx, level, "message not renewed; trying again", "error", err, "retry_in", retryIn)
		return time.Now().Add(retryIn), false, nil
	default:
		pace.observe(time.Now(), false)
		return asked.Add(after), false, nil
	}
}

func (r *Renewal) isStopped() bool {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	return r.stopped
}

// Stop stops renewing and waits until nothing is in flight, for renewGrace at most. It may
// be called more than once.
func (r *Renewal) Stop() {
	s := r.set
	s.mu.Lock()
	if !r.stopped {
		r.stopped = true
		s.active--
	}
	if r.InHeap() {
		s.due.Remove(r)
		s.arm()
	}
	if r.cancel == nil {
		s.mu.Unlock()
		return
	}
	if r.ended == nil {
		r.ended = make(chan struct{})
	}
	ended := r.ended
	defer time.AfterFunc(renewGrace, r.cancel).Stop()
	s.mu.Unlock()
	<-ended
}

// keepUntil returns up to when a job may run whose pop receipt was refused. doubtful is
// when the visibility timeout expires that a renewal without an answer may have set. It
// is zero if there was none: then another worker has the message.
func keepUntil(doubtful time.Time, visibility time.Duration) time.Time {
	if doubtful.IsZero() {
		return doubtful
	}
	return doubtful.Add(-min(visibility/lostShare, drain.OneJobGrace))
}

// Visibility returns the visibility timeout to ask for, and how long after asking to
// renew the message.
func (s *Set) Visibility() (visibility, renewAfter time.Duration) { return s.pace.current(time.Now()) }
