package oracle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// What operators are promised of workers that read the control document.
const (
	// FollowWithin is how long after a change of the document a worker may still
	// claim: it reads the document every 15 s.
	FollowWithin = 20 * time.Second

	// StopWithin is how long the handler of a cancelled job may still run, and
	// DrainWithin the same for any job on a drained worker.
	StopWithin  = 30 * time.Second
	DrainWithin = 30 * time.Second
)

// Steering judges whether workers follow the requests of operators, by the stored control
// document and the calls of workers. Its methods are called in the order of time. The
// zero value is a deployment without a document.
type Steering struct {
	// Stopped counts the handlers that ended after a cancel or a drain that their worker
	// could know.
	Stopped int

	paused, drainAll time.Time            // since when; zero while not asked for
	drained          map[string]time.Time // since when, by worker
	named, cancelled map[string]time.Time // when the document named a job first, and when its record became cancelled
	resumed          time.Time            // when a pause or a drain ended last
	blind            map[string]time.Time // until when a worker may not know, by worker
	running          map[handler]*handlerRun
}

// handler is a handler that runs.
type handler struct{ worker, job string }

type handlerRun struct {
	since    time.Time
	reported bool // that it runs for too long
}

// Follow reads the control document, as it is stored from now on.
func (s *Steering) Follow(document []byte, now time.Time) (broken []Violation, err error) {
	var asked struct {
		Pause    json.RawMessage            `json:"pause"`
		DrainAll json.RawMessage            `json:"drain_all"`
		Drain    map[string]json.RawMessage `json:"drain"`
		Cancels  []struct{ ID string }      `json:"cancels"`
	}
	if err := json.Unmarshal(document, &asked); err != nil {
		return nil, fmt.Errorf("read the control document: %w", err)
	}
	broken = s.Check(now) // by the requests until now
	drained := map[string]time.Time{}
	for worker := range asked.Drain {
		drained[worker] = since(s.drained[worker], true, now)
	}
	paused, drainAll := since(s.paused, asked.Pause != nil, now), since(s.drainAll, asked.DrainAll != nil, now)
	if paused.Before(s.paused) || drainAll.Before(s.drainAll) || len(drained) < len(s.drained) {
		s.resumed = now
	}
	s.paused, s.drainAll, s.drained = paused, drainAll, drained
	if s.named == nil {
		s.named = map[string]time.Time{}
	}
	for _, c := range asked.Cancels {
		s.named[c.ID] = since(s.named[c.ID], true, now)
	}
	return broken, nil
}

// Cancelled records that a job's record became cancelled. The document may name jobs
// whose write never took effect: it decides nothing.
func (s *Steering) Cancelled(job string, now time.Time) {
	if s.cancelled == nil {
		s.cancelled = map[string]time.Time{}
	}
	s.cancelled[job] = since(s.cancelled[job], true, now)
}

// told returns since when workers can know that a job is cancelled; zero if it is not,
// or they were not told.
func (s *Steering) told(job string) time.Time {
	named, cancelled := s.named[job], s.cancelled[job]
	switch {
	case named.IsZero() || cancelled.IsZero():
		return time.Time{}
	case named.After(cancelled):
		return named
	}
	return cancelled
}

// since returns since when something is asked for that was asked for since before, zero
// for never.
func since(before time.Time, asked bool, now time.Time) time.Time {
	switch {
	case !asked:
		return time.Time{}
	case before.IsZero():
		return now
	}
	return before
}

// Blind records that a worker may not learn of requests before then.
func (s *Steering) Blind(worker string, until time.Time) {
	if s.blind == nil {
		s.blind = map[string]time.Time{}
	}
	if until.After(s.blind[worker]) {
		s.blind[worker] = until
	}
}

// drainedSince returns since when a worker is to drain; zero if it is not.
func (s *Steering) drainedSince(worker string) time.Time {
	if at := s.drained[worker]; !at.IsZero() && (s.drainAll.IsZero() || at.Before(s.drainAll)) {
		return at
	}
	return s.drainAll
}

// heldSince returns since when a worker is not to claim, and why; zero if it may.
func (s *Steering) heldSince(worker string) (at time.Time, why string) {
	at, why = s.drainedSince(worker), "the worker was drained"
	if !s.paused.IsZero() && (at.IsZero() || s.paused.Before(at)) {
		at, why = s.paused, "claiming was paused"
	}
	return at, why
}

// overdue returns for how long a worker has known the request, less the time that it may
// take. It is negative without a request.
func (s *Steering) overdue(worker string, asked time.Time, within time.Duration, now time.Time) time.Duration {
	if asked.IsZero() {
		return -1
	}
	if until := s.blind[worker]; until.After(asked) {
		asked = until
	}
	return now.Sub(asked) - within
}

// Works reports whether a worker has to claim messages: nothing that is asked keeps it
// from that, and has not since it must have followed.
func (s *Steering) Works(worker string, now time.Time) bool {
	held, _ := s.heldSince(worker)
	return held.IsZero() && (s.resumed.IsZero() || now.Sub(s.resumed) > FollowWithin)
}

// Claimed records that a worker asked for messages.
func (s *Steering) Claimed(worker string, now time.Time) []Violation {
	broken := s.Check(now)
	held, why := s.heldSince(worker)
	if held.IsZero() {
		return broken
	}
	if late := s.overdue(worker, held, FollowWithin, now); late > 0 {
		return append(broken, disobeyed("%s claims %s after %s", worker, late+FollowWithin, why))
	}
	return broken
}

// Started records that a worker called the handler of a job. put is when the newest
// message of the job was put: a message that is newer than a cancel may start the job
// again, until its first write.
func (s *Steering) Started(worker, job string, put, now time.Time) []Violation {
	broken := s.Check(now)
	if s.running == nil {
		s.running = map[handler]*handlerRun{}
	}
	s.running[handler{worker, job}] = &handlerRun{since: now}
	told := s.told(job)
	if told.IsZero() || !put.Before(told) {
		return broken
	}
	if late := s.overdue(worker, told, FollowWithin, now); late > 0 {
		return append(broken, disobeyed("%s starts job %s %s after it was cancelled", worker, job, late+FollowWithin))
	}
	return broken
}

// Ended records that the handler returned.
func (s *Steering) Ended(worker, job string, now time.Time) []Violation {
	broken := s.Check(now)
	h := handler{worker, job}
	if asked, _ := s.mustEnd(h); !asked.IsZero() && asked.After(s.blind[worker]) {
		s.Stopped++
	}
	delete(s.running, h)
	return broken
}

// mustEnd returns since when a handler that runs must end, and within what time; zero
// if it need not.
func (s *Steering) mustEnd(h handler) (asked time.Time, within time.Duration) {
	r := s.running[h]
	switch told := s.told(h.job); {
	case r == nil:
		return time.Time{}, 0
	case told.After(r.since): // a later handler ends at its next write
		return told, StopWithin
	}
	return s.drainedSince(h.worker), DrainWithin
}

// Check holds the handlers that run to the rules.
func (s *Steering) Check(now time.Time) (broken []Violation) {
	for h, r := range s.running {
		asked, within := s.mustEnd(h)
		if late := s.overdue(h.worker, asked, within, now); late > 0 && !r.reported {
			broken = append(broken, disobeyed("%s runs job %s for %s after the job was cancelled or the worker drained", h.worker, h.job,
				late+within))
			r.reported = true
		}
	}
	slices.SortFunc(broken, func(a, b Violation) int { return strings.Compare(a.Text, b.Text) })
	return broken
}

func disobeyed(format string, args ...any) Violation {
	return Violation{Disobeyed, fmt.Sprintf(format, args...)}
}
