// Package breaker has circuit breakers that keep a worker from jobs of kinds that all
// fail on it.
//
//	closed ── failures in a row ──▶ open ── cool-down over ─▶ half-open
//	  ▲                              ▲                          │ one probe
//	  │                              └────── probe fails ───────┤
//	  └────────── probe succeeds, or outlasts the failures ─────┘
//
// Each kind has its own [Breaker] in a [Set]. A run of a job asks the Set for a [Pass],
// and returns it with its [Verdict]. A Breaker is a value with pure functions of the
// time; the Set guards it. It knows nothing of jobs but their ids and kinds.
//
// # Sick machines
//
// Two rules keep a machine that fails every job from poisoning the queue's jobs.
//
// A breaker opens when five different jobs of the kind in a row, and more than still run, fail or
// are interrupted by their handlers, and none commits or makes progress. Evictions, duplicates,
// permanent errors and failures of jobs that failed on another machine last prove nothing about
// this machine. After the cool-down one job at a time is tried: a sick machine fails one a minute.
//
// A machine may also fail only some jobs. So a breaker opens as well when far more of its last 32
// runs failed than runs of the kind did on other machines in the last ten minutes, by their
// heartbeats: the rule, with its numbers, is [activity.StandsOut]. Then it closes after five probes
// in a row that passed. Each of them may begin at once. A kind that fails everywhere opens no
// breaker in this way, and neither does the only machine that has it.
//
// A job that failed on a machine (failedby in its record) and returns to it is left to others for
// 10 minutes. If it fails there again, both failures count as one, unless a job of the kind that
// began in between succeeded there, or no other machine has the kind. So one machine never poisons a
// job, and a job that fails everywhere still reaches its limit. Package delivery applies this rule.
package breaker

import (
	"maps"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/activity"
)

const (
	// breakerAfter is how many different jobs of a kind have to fail in a row,
	// with no success between, before its circuit breaker opens.
	breakerAfter = 5

	// firstCooldown is how long a breaker stays open the first time. Each probe that
	// fails doubles it, up to longestCooldown: in that time a worker that stays sick
	// costs one job a failed attempt, and a worker that is well resumes.
	firstCooldown   = 10 * time.Second
	longestCooldown = time.Minute

	// provenAfter is how many probes in a row must pass until a breaker closes that opened
	// because the machine stands out.
	provenAfter = 5

	// A probe passes when it runs for twice as long as the longest of the runs
	// that failed, within these bounds. It need not end for that.
	minProbe = 10 * time.Second
	maxProbe = 10 * time.Minute
)

// Breaker is the circuit breaker of one kind of job on one worker. The zero value
// is closed.
//
// Where no other machine would run the jobs, a cool-down leaves them to no worker. There
// it is only a brake: always firstCooldown, and then jobs run as in the closed state
// until as many have failed again.
//
// It is a value with pure functions; [Set] guards it.
type Breaker struct {
	failed   []string      // the different jobs that failed in a row
	longest  time.Duration // the longest of their runs
	Trips    int           // in a row
	Until    time.Time     // when the cool-down ends; zero while closed
	brake    bool          // any number of jobs run after the cool-down, not one probe
	probe    time.Time     // when the probe under way began; zero for none
	lastGood time.Time     // when the last run that succeeded began
	recent   recent        // the last runs since it closed

	// StandsOut says that it opened because far more runs fail here than elsewhere, and
	// passed is how many probes in a row have passed since.
	StandsOut bool
	passed    int
}

// recent has the outcome of the last 32 runs, a bit for each: 1 for a failure.
type recent struct {
	bits uint32
	runs int
}

func (r recent) add(failed bool) recent {
	r.bits <<= 1
	if failed {
		r.bits |= 1
	}
	r.runs = min(r.runs+1, 32)
	return r
}

func (r recent) counts() activity.Runs {
	failed := bits.OnesCount32(r.bits)
	return activity.Runs{Done: r.runs - failed, Failed: failed}
}

// Verdict is the evidence that the end of a run gives about the worker.
type Verdict int

// The verdicts.
const (
	Inconclusive Verdict = iota // nothing: an eviction, a permanent error, a lost record
	Works                       // it committed the job, or made progress
	Fails                       // it did neither, and was not stopped
)

// IsClosed reports whether jobs run without restriction.
func (b Breaker) IsClosed() bool { return b.Until.IsZero() }

// outlast is how long a probe has to run in order to pass.
func (b Breaker) outlast() time.Duration { return min(max(2*b.longest, minProbe), maxProbe) }

// wait returns how long no job of the kind may begin, 0 if one may now, and
// whether that would be a probe.
func (b Breaker) wait(now time.Time) (wait time.Duration, probe bool) {
	switch {
	case b.IsClosed():
		return 0, false
	case now.Before(b.Until):
		return b.Until.Sub(now), false
	case b.brake:
		return 0, false
	case b.probe.IsZero():
		return 0, true
	default:
		return max(b.probe.Add(b.outlast()).Sub(now), 0), false
	}
}

// begin lets a job begin at now, if wait says that one may.
func (b Breaker) begin(now time.Time) Breaker {
	switch _, probe := b.wait(now); {
	case probe:
		b.probe = now
	case !b.IsClosed() && !b.brake: // the probe has outlasted the failures
		if b = b.pass(now); !b.IsClosed() {
			b.probe = now
		}
	}
	return b
}

// pass returns the breaker after a run that succeeded, or a probe that outlasted the
// failures, while it is open: closed, unless more probes have to pass.
func (b Breaker) pass(now time.Time) Breaker {
	b.passed++
	if b.StandsOut && !b.brake && b.passed < provenAfter {
		b.Until, b.probe = now, time.Time{}
		return b
	}
	return Breaker{lastGood: b.lastGood, recent: b.recent}
}

// Run is the end of one job's run.
type Run struct {
	Job         string
	Verdict     Verdict
	begun       time.Time
	probe       bool
	others      int  // other jobs of the kind that still run
	OnlyMachine bool // no other machine would run the job

	// Failed says that a run with the verdict Fails is a failure and no interruption, and
	// Elsewhere are the runs of the kind on other machines in the last ten minutes.
	Failed    bool
	Elsewhere activity.Runs
}

// end returns the breaker after the end of a run at now.
func (b Breaker) end(r Run, now time.Time) Breaker {
	if r.Verdict == Works && r.begun.After(b.lastGood) {
		b.lastGood = r.begun
	}
	switch {
	case b.isBefore(r):
		return b
	case r.Verdict == Works && b.IsClosed():
		return Breaker{lastGood: b.lastGood, recent: b.recent.add(false)}
	case r.Verdict == Works:
		return b.pass(now)
	case r.Verdict == Inconclusive:
		b.probe = time.Time{}
		return b
	}
	return b.fail(r, now)
}

// fail returns the breaker after a run that failed.
func (b Breaker) fail(r Run, now time.Time) Breaker {
	if !slices.Contains(b.failed, r.Job) {
		b.failed = append(slices.Clip(b.failed), r.Job)
	}
	b.longest = max(b.longest, now.Sub(r.begun))
	isProbe := !b.IsClosed() && !b.brake
	if r.Failed && !isProbe {
		b.recent = b.recent.add(true)
	}
	standsOut := !isProbe && !r.OnlyMachine && activity.StandsOut(b.recent.counts(), r.Elsewhere)
	if isProbe || standsOut || len(b.failed) >= max(breakerAfter, r.others+1) {
		b.Trips++
		if standsOut { // measured again once it is closed
			b.StandsOut, b.recent = true, recent{}
		}
		b.passed = 0
		b.brake, b.probe = r.OnlyMachine, time.Time{}
		b.Until = now.Add(cooldownFor(b.Trips, b.brake))
		b.failed = nil
	}
	return b
}

// isBefore reports whether a run began before the breaker opened: its end shows nothing
// new.
func (b Breaker) isBefore(r Run) bool {
	switch {
	case b.IsClosed():
		return false
	case b.brake:
		return r.begun.Before(b.Until)
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

// Set are the circuit breakers of the kinds that a worker has met. A kind's
// interpreter may be missing while others work, so each kind has its own. While all of
// them are open, the worker claims nothing.
type Set struct {
	mu    sync.Mutex
	kinds map[string]*kindBreaker
}

// kindBreaker is a kind's breaker, and how many of its jobs run.
type kindBreaker struct {
	Breaker
	running int
}

// Pass is the permission of one job to run.
type Pass struct {
	begun time.Time
	Probe bool
}

// Enter returns a pass for a job of the kind at now, if ok, and whether that closed the
// breaker. The caller must return every pass to leave.
func (s *Set) Enter(kind string, now time.Time) (p Pass, closed, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds == nil {
		s.kinds = map[string]*kindBreaker{}
	}
	if s.kinds[kind] == nil {
		s.kinds[kind] = &kindBreaker{}
	}
	k := s.kinds[kind]
	if wait, _ := k.wait(now); wait > 0 {
		return Pass{}, false, false
	}
	wasClosed := k.IsClosed()
	k.Breaker = k.begin(now)
	k.running++
	return Pass{begun: now, Probe: !k.IsClosed() && !k.brake}, !wasClosed && k.IsClosed(), true
}

// Leave takes a pass back, and returns the breaker before and after.
func (s *Set) Leave(kind string, p Pass, r Run, now time.Time) (before, after Breaker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds[kind]
	k.running--
	r.begun, r.probe, r.others = p.begun, p.Probe, k.running
	before = k.Breaker
	k.Breaker = k.end(r, now)
	return before, k.Breaker
}

// HasWorkedSince reports whether a job of the kind that began after that time
// succeeded here.
func (s *Set) HasWorkedSince(kind string, since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds[kind]
	return k != nil && k.lastGood.After(since)
}

// Claimable returns how many messages may be claimed at now, limit at most: none while
// all breakers are open, which changes after wait, and one at a time for a probe.
func (s *Set) Claimable(limit int, now time.Time) (most int, wait time.Duration) {
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
