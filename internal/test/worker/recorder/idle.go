package recorder

import (
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/internal/worker/intake"
)

// Bounds on idle time. They are the worker's promises, not measurements.
const (
	// longestHidden is the longest that a message may be hidden: for a back-off, or
	// because it was requeued more than once.
	longestHidden = 10 * time.Minute

	// longestPause is the longest pause between two claims from an empty queue, for
	// each queue that the worker takes from: intake.LongestPoll and a quarter of jitter.
	longestPause = intake.LongestPoll * 5 / 4

	// idleSlack is added for the time that the calls take.
	idleSlack = time.Second

	// quiet is how long a worker is excluded from the check after a fault, and
	// quietAfterFaults how long all workers are after the last fault: the last
	// requests arrive a minute late.
	quiet            = 30 * time.Second
	QuietAfterFaults = 2 * time.Minute
)

// idleCheck checks that no message is visible for longer than a pause between two
// claims while one worker that takes from its queue has a free slot all that time.
// Faults make claims fail, so only times without faults count.
type idleCheck struct {
	faultFreeFrom time.Duration        // since the beginning of the history
	due           map[string]time.Time // when a message is visible, by its id
	workers       map[string]*slots
	worst         time.Duration
}

// slots are the slots of one worker.
type slots struct {
	size, busy    int
	claims        bool // it has claimed at least once
	queues        map[string]bool
	excludedUntil time.Time    // it is not checked before
	free          oracle.Slots // when one was free
}

// updateFree records that a VM's worker has a free slot, if it has one and is checked.
func (rec *Recorder) updateFree(vm string, s *slots, now time.Time) {
	if s.busy < s.size && !now.Before(s.excludedUntil) && rec.steering.Works(vm, now) {
		s.free.Set(true, now)
	}
}

// bound is the longest that a message may wait for this worker.
func (s *slots) bound() time.Duration {
	return longestPause*time.Duration(len(s.queues)) + idleSlack
}

// CheckIdle starts the check of idle times, from faultFreeFrom after the test's start.
func (rec *Recorder) CheckIdle(faultFreeFrom time.Duration) {
	rec.idle = &idleCheck{faultFreeFrom: faultFreeFrom, due: map[string]time.Time{}, workers: map[string]*slots{}}
}

// checkVisibility checks, after each call for messages of jobs, how long messages are
// hidden, and how long those waited that were claimed.
func (rec *Recorder) checkVisibility(r storage.Result) {
	if rec.idle == nil || !slices.Contains(rec.queues(), r.Queue) {
		return
	}
	now := time.Now()
	if r.Operation == storage.OpGetMessages {
		for _, id := range r.MessageIDs {
			rec.checkWait(r.Queue, id, now)
		}
		if s := rec.idle.workers[rec.Sender]; s != nil {
			s.claims = true
			rec.updateFree(rec.Sender, s, now)
		}
	}
	for _, m := range rec.server.Messages(r.Queue) {
		if hidden := m.NextVisible.Sub(now); hidden > longestHidden && rec.Sender != "test" {
			rec.addViolation(rec.job(rec.jobOf[m.ID]), "message %s is hidden for %s, want %s at most", short(m.ID), hidden, longestHidden)
		}
		rec.idle.due[m.ID] = m.NextVisible
	}
}

// checkWait checks how long a message waited that is claimed now.
func (rec *Recorder) checkWait(queue, id string, now time.Time) {
	due := rec.idle.due[id]
	if from := rec.began.Add(rec.idle.faultFreeFrom); from.After(due) {
		due = from
	}
	for vm, s := range rec.idle.workers {
		if !s.queues[queue] {
			continue
		}
		waited := s.free.LongestFree(oracle.Span{From: due, To: now}, now)
		rec.idle.worst = max(rec.idle.worst, waited)
		if waited > s.bound() {
			rec.addViolation(rec.job(rec.jobOf[id]), "message %s was visible for %s while %s had a free slot, want %s at most", short(id), waited,
				vm, s.bound())
		}
	}
}

// WatchSlots returns an observer for a worker, which counts its busy slots.
func (rec *Recorder) WatchSlots(vm string, size int, queues ...string) observe.Observer {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	s := &slots{size: size, queues: map[string]bool{}}
	for _, q := range queues {
		s.queues[q] = true
	}
	rec.idle.workers[vm] = s
	return func(e observe.Event) {
		switch e.(type) {
		case observe.Delivered:
			rec.changeBusy(vm, s, 1)
		case observe.Ended:
			rec.changeBusy(vm, s, -1)
		}
	}
}

// changeBusy adds n to a worker's busy slots.
func (rec *Recorder) changeBusy(vm string, s *slots, n int) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if s.busy += n; s.busy >= s.size {
		s.free.Set(false, time.Now())
	} else if s.claims {
		rec.updateFree(vm, s, time.Now())
	}
}

// ExcludeFor excludes a worker from the check while a fault lasts, and quiet longer.
func (rec *Recorder) ExcludeFor(vm string, lasts time.Duration) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	until := time.Now().Add(lasts + quiet)
	rec.steering.Blind(vm, until)
	if s := rec.idle.workers[vm]; s != nil {
		s.free.Set(false, time.Now())
		s.excludedUntil = until
	}
}

// Exclude excludes a worker that is about to end from the check.
func (rec *Recorder) Exclude(vm string) { rec.ExcludeFor(vm, 1000*time.Hour) }
