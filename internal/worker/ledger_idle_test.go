package worker

import (
	"time"

	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/oracle"
)

// Bounds on idle time. Each is what the worker promises, not what was measured.
const (
	// longestHidden is the longest that a message may be hidden: a back-off, or a
	// put-back of a message that was put back before.
	longestHidden = 10 * time.Minute

	// longestPause is between two claims from an empty queue: longestPoll, give or
	// take a quarter, for each queue that the worker takes from.
	longestPause = longestPoll * 5 / 4

	// idleSlack is for the calls themselves.
	idleSlack = time.Second

	// quiet is how long a worker counts as busy after something happened to it, and
	// all of them once the weather has cleared: the last requests arrive a minute
	// late.
	quiet     = 30 * time.Second
	quietDown = 2 * time.Minute
)

// idle is the oracle of idle jobs: no message waits, visible, for longer than a
// pause between two claims while one and the same worker has a free slot and takes
// from its queue. In bad weather claims get lost, so only calm times count.
type idle struct {
	calmFrom time.Duration        // since the beginning of the history
	due      map[string]time.Time // when a message is visible, by its id
	workers  map[string]*slots
	worst    time.Duration
}

// slots are those of one worker.
type slots struct {
	size, busy int
	claims     bool // it has begun to claim
	queues     map[string]bool
	asleep     time.Time    // it is not counted before
	free       oracle.Slots // when one was free
}

// freeAgain records that a slot is free, if there is one.
func (s *slots) freeAgain(now time.Time) {
	if s.busy < s.size && !now.Before(s.asleep) {
		s.free.Set(true, now)
	}
}

// bound is the longest that a message may wait for this worker.
func (s *slots) bound() time.Duration {
	return longestPause*time.Duration(len(s.queues)) + idleSlack
}

// watchIdle begins to judge how long jobs are idle in calm times.
func (l *ledger) watchIdle(calmFrom time.Duration) {
	l.idle = &idle{calmFrom: calmFrom, due: map[string]time.Time{}, workers: map[string]*slots{}}
}

// noteVisibility is told of each call for messages of jobs, after its effect.
func (l *ledger) noteVisibility(r storage.Result) {
	if l.idle == nil || r.Queue != l.b.names.Queue && r.Queue != l.b.names.OnDemand {
		return
	}
	now := time.Now()
	if r.Operation == storage.OpGetMessages {
		for _, id := range r.MessageIDs {
			l.judgeWait(r.Queue, id, now)
		}
		if s := l.idle.workers[l.sender]; s != nil {
			s.claims = true
			s.freeAgain(now)
		}
	}
	for _, m := range l.b.server.Messages(r.Queue) {
		if hidden := m.NextVisible.Sub(now); hidden > longestHidden && l.sender != "test" {
			l.breaks(l.job(l.jobOf[m.ID]), "message %s is hidden for %s, want %s at most", short(m.ID), hidden, longestHidden)
		}
		l.idle.due[m.ID] = m.NextVisible
	}
}

// judgeWait judges how long a message waited that is claimed now.
func (l *ledger) judgeWait(queue, id string, now time.Time) {
	due := l.idle.due[id]
	if calm := l.began.Add(l.idle.calmFrom); calm.After(due) {
		due = calm
	}
	for vm, s := range l.idle.workers {
		if !s.queues[queue] {
			continue
		}
		waited := s.free.LongestFree(oracle.Span{From: due, To: now}, now)
		l.idle.worst = max(l.idle.worst, waited)
		if waited > s.bound() {
			l.breaks(l.job(l.jobOf[id]), "message %s was visible for %s while %s had a free slot, want %s at most", short(id), waited, vm, s.bound())
		}
	}
}

// slotsOf begins to watch a worker's slots, through what its observer is told.
func (l *ledger) slotsOf(vm string, size int, queues ...string) Observer {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &slots{size: size, queues: map[string]bool{}}
	for _, q := range queues {
		s.queues[q] = true
	}
	l.idle.workers[vm] = s
	return &slotObserver{ledger: l, slots: s}
}

// disturb says that something happens to a worker for that long.
func (l *ledger) disturb(vm string, lasts time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.idle.workers[vm]; s != nil {
		s.free.Set(false, time.Now())
		s.asleep = time.Now().Add(lasts + quiet)
	}
}

// leave says that a worker is to end: it counts no more.
func (l *ledger) leave(vm string) { l.disturb(vm, 1000*time.Hour) }

// slotObserver counts the deliveries of one worker.
type slotObserver struct {
	unobserved
	ledger *ledger
	slots  *slots
}

func (o *slotObserver) Delivered() { o.count(1) }

func (o *slotObserver) Ended(string) { o.count(-1) }

func (o *slotObserver) count(n int) {
	o.ledger.mu.Lock()
	defer o.ledger.mu.Unlock()
	if o.slots.busy += n; o.slots.busy >= o.slots.size {
		o.slots.free.Set(false, time.Now())
	} else if o.slots.claims {
		o.slots.freeAgain(time.Now())
	}
}
