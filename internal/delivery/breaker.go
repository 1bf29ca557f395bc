package delivery

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// breakerAfter is how many different jobs of a kind have to fail in a row,
	// with no success between, before its circuit breaker opens.
	breakerAfter = 5

	// firstCooldown is how long a breaker stays open the first time. Each probe that
	// fails doubles it, up to longestRest: a worker that stays sick costs one job
	// in that time a failed attempt, and one that was slandered by bad jobs is
	// back within it.
	firstCooldown   = 10 * time.Second
	longestCooldown = time.Minute

	// A probe passes when it runs for twice as long as the longest of the runs
	// that failed, within these bounds. It need not end for that.
	minProbe = 10 * time.Second
	maxProbe = 10 * time.Minute
)

// breaker is the circuit breaker of one kind of job on one worker. The zero value
// is closed.
//
//	closed ── failures in a row ──▶ open ── cool-down over ─▶ half-open
//	  ▲                              ▲                          │ one probe
//	  │                              └────── probe fails ───────┤
//	  └────────── probe succeeds, or outlasts the failures ─────┘
//
// Where no other machine would run the jobs, a cool-down leaves them to no worker. There
// it is only a brake: always firstCooldown, and then jobs run as in the closed state
// until as many have failed again.
//
// It is a value with pure functions; [breakers] guards it.
type breaker struct {
	failed   []string      // the different jobs that failed in a row
	longest  time.Duration // run of theirs
	trips    int           // in a row
	until    time.Time     // when the cool-down ends; zero while closed
	brake    bool          // any number of jobs run after the cool-down, not one probe
	probe    time.Time     // when the probe under way began; zero for none
	lastGood time.Time     // when the last run that succeeded began
}

// runVerdict is what the end of a run shows about the worker.
type runVerdict int

const (
	inconclusive runVerdict = iota // nothing: an eviction, a permanent error, a lost record
	works                          // it committed the job, or made progress
	fails                          // it did neither, and was not stopped
)

func (b breaker) isClosed() bool { return b.until.IsZero() }

// outlast is how long a probe has to run in order to pass.
func (b breaker) outlast() time.Duration { return min(max(2*b.longest, minProbe), maxProbe) }

// wait returns how long no job of the kind may begin, 0 if one may now, and
// whether that would be a probe.
func (b breaker) wait(now time.Time) (wait time.Duration, probe bool) {
	switch {
	case b.isClosed():
		return 0, false
	case now.Before(b.until):
		return b.until.Sub(now), false
	case b.brake:
		return 0, false
	case b.probe.IsZero():
		return 0, true
	default:
		return max(b.probe.Add(b.outlast()).Sub(now), 0), false
	}
}

// begin lets a job begin at now, if wait says that one may.
func (b breaker) begin(now time.Time) breaker {
	switch _, probe := b.wait(now); {
	case probe:
		b.probe = now
	case !b.isClosed() && !b.brake: // the probe has outlasted the failures
		return breaker{lastGood: b.lastGood}
	}
	return b
}

// finishedRun is the end of one job's run.
type finishedRun struct {
	job         string
	verdict     runVerdict
	begun       time.Time
	probe       bool
	others      int  // other jobs of the kind that still run
	onlyMachine bool // no other machine would run the job
}

// end returns the breaker after the end of a run at now.
func (b breaker) end(r finishedRun, now time.Time) breaker {
	if r.verdict == works && r.begun.After(b.lastGood) {
		b.lastGood = r.begun
	}
	switch {
	case b.isBefore(r):
		return b
	case r.verdict == works:
		return breaker{lastGood: b.lastGood}
	case r.verdict == inconclusive:
		b.probe = time.Time{}
		return b
	}
	if !slices.Contains(b.failed, r.job) {
		b.failed = append(slices.Clip(b.failed), r.job)
	}
	b.longest = max(b.longest, now.Sub(r.begun))
	if isProbe := !b.isClosed() && !b.brake; isProbe || len(b.failed) >= max(breakerAfter, r.others+1) {
		b.trips++
		b.brake, b.probe = r.onlyMachine, time.Time{}
		b.until = now.Add(cooldownFor(b.trips, b.brake))
		b.failed = nil
	}
	return b
}

// isBefore reports whether a run began before the breaker opened: its end shows nothing
// new.
func (b breaker) isBefore(r finishedRun) bool {
	switch {
	case b.isClosed():
		return false
	case b.brake:
		return r.begun.Before(b.until)
	default:
		return !r.probe || !r.begun.Equal(b.probe)
	}
}

// cooldownFor returns how long a breaker stays open that has opened so many times in a
// row.
func cooldownFor(trips int, brake bool) time.Duration {
	if shift := trips - 1; !brake && shift > 0 {
		return min(firstCooldown<<min(shift, 10), longestCooldown)
	}
	return firstCooldown
}

// breakers are the circuit breakers of the kinds that a worker has met. A kind's
// interpreter may be missing while others work, so each kind has its own. While all of
// them are open, the worker claims nothing.
type breakers struct {
	mu    sync.Mutex
	kinds map[string]*kindBreaker
}

// kindBreaker is a kind's breaker, and how many of its jobs run.
type kindBreaker struct {
	breaker
	running int
}

// pass is the permission of one job to run.
type pass struct {
	begun time.Time
	probe bool
}

// enter returns a pass for a job of the kind at now, if ok, and whether that closed the
// breaker. The caller must return every pass to leave.
func (s *breakers) enter(kind string, now time.Time) (p pass, closed, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds == nil {
		s.kinds = map[string]*kindBreaker{}
	}
	if s.kinds[kind] == nil {
		s.kinds[kind] = &kindBreaker{}
	}
	k := s.kinds[kind]
	wait, probe := k.wait(now)
	if wait > 0 {
		return pass{}, false, false
	}
	wasClosed := k.isClosed()
	k.breaker = k.begin(now)
	k.running++
	return pass{begun: now, probe: probe}, !wasClosed && k.isClosed(), true
}

// leave takes a pass back, and returns the breaker before and after.
func (s *breakers) leave(kind string, p pass, r finishedRun, now time.Time) (before, after breaker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds[kind]
	k.running--
	r.begun, r.probe, r.others = p.begun, p.probe, k.running
	before = k.breaker
	k.breaker = k.end(r, now)
	return before, k.breaker
}

// hasWorkedSince reports whether a job of the kind that began after that time
// succeeded here.
func (s *breakers) hasWorkedSince(kind string, since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds[kind]
	return k != nil && k.lastGood.After(since)
}

// claimable returns how many messages may be claimed at now, limit at most: none while
// all breakers are open, which changes after wait, and one at a time for a probe.
func (s *breakers) claimable(limit int, now time.Time) (most int, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait = longestCooldown
	for k := range maps.Values(s.kinds) {
		rest, probe := k.wait(now)
		switch {
		case rest == 0 && !probe:
			return limit, 0
		case probe:
			most = min(limit, 1)
		default:
			wait = min(wait, rest)
		}
	}
	if len(s.kinds) == 0 {
		return limit, 0
	}
	if most > 0 {
		return most, 0
	}
	return 0, wait
}
