package running

import (
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/job"
)

const (
	// silentFor and silentFactor say when a job counts as silent: for so long, and so
	// many times as long as it ever was between two reports of this run.
	silentFor    = 30 * time.Second
	silentFactor = 10

	// A job that has not reported in this run counts as silent after silentAtFirst. If this
	// worker has done usualFrom jobs of its kind, that is silentFactor times the longest run
	// time of these, between silentSoonest and silentAtFirst.
	silentAtFirst = time.Hour
	silentSoonest = 30 * time.Second
	usualFrom     = 20
)

// Stopwatch measures one run of a handler, by the time for which the worker ran. It may be
// read from any goroutine, but seen.
type Stopwatch struct {
	clock      *Clock
	begun      time.Duration // by the clock
	took       atomic.Int64  // nanoseconds; 0 while it runs
	lastReport atomic.Int64  // when the last report came, in nanoseconds from begun; 0 for none
	longest    atomic.Int64  // the longest time between two reports, in nanoseconds
	lastSave   atomic.Int64  // when the last state was recorded, in nanoseconds from begun
	seen       *job.Progress // the report that the loop saw last

	state timedReport                 // the first that the loop saw of the state that it saw last
	first atomic.Pointer[timedReport] // the first that came since the loop turned last
}

// timedReport is a report and how long the handler had run then.
type timedReport struct {
	report *job.Progress
	at     time.Duration
}

// start starts a stopwatch.
func (c *Clock) start(restored *job.Progress) *Stopwatch {
	return &Stopwatch{clock: c, begun: c.use(), seen: restored}
}

// Elapsed is how long the handler has run, or ran. While it runs, each call returns another
// time.
func (s *Stopwatch) Elapsed() time.Duration {
	if took := s.took.Load(); took > 0 {
		return time.Duration(took)
	}
	return s.sinceBegun()
}

// sinceBegun is how long the worker has run since the start, also after the handler.
func (s *Stopwatch) sinceBegun() time.Duration { return s.clock.Now() - s.begun }

// Stamp records when a report came, of the first one after each turn of the loop: so every
// report of a handler that reports seldom has its time, and the reports of a handler that
// reports often stay cheap.
func (s *Stopwatch) Stamp(p *job.Progress) {
	if s.first.Load() == nil {
		s.first.Store(&timedReport{p, s.Elapsed()})
	}
}

// Notice records the report that the loop sees now, and reports whether it came since the
// loop turned last.
func (s *Stopwatch) Notice(latest *job.Progress) bool {
	if latest == s.seen {
		return false
	}
	first := s.first.Load()
	if latest.HasState() && !latest.SameState(s.state.report) {
		s.state = timedReport{latest, s.ReportedAt(latest)}
	}
	s.seen = latest
	s.first.CompareAndSwap(first, nil)
	return true
}

// ReportedAt is how long the handler had run when it reported a state for the first time.
func (s *Stopwatch) ReportedAt(p *job.Progress) time.Duration {
	first := s.first.Load()
	switch {
	case !p.HasState():
		return 0
	case p.SameState(s.state.report):
		return s.state.at
	case first != nil && p.SameState(first.report):
		return first.at
	}
	return s.Elapsed() // it has just come, or is one of many
}

// Reported records that a report came. It has one caller at a time.
func (s *Stopwatch) Reported() {
	now := int64(s.sinceBegun())
	before := s.lastReport.Swap(now)
	s.longest.Store(max(s.longest.Load(), now-before))
}

// LongestSilence is the longest time between two reports of this run.
func (s *Stopwatch) LongestSilence() time.Duration { return time.Duration(s.longest.Load()) }

// Saved records that a state was recorded.
func (s *Stopwatch) Saved() { s.lastSave.Store(int64(s.sinceBegun())) }

// Silence is how long the handler has gone without a report.
func (s *Stopwatch) Silence() time.Duration {
	heard := time.Duration(s.lastReport.Load()) // before the clock is read, or it may be later
	return s.sinceBegun() - heard
}

// isSilent reports whether that is much longer than ever before in this run, or than
// atFirst if the handler has not reported in this run.
func (s *Stopwatch) isSilent(atFirst time.Duration) bool {
	if s.lastReport.Load() == 0 {
		return s.Silence() > atFirst
	}
	return s.Silence() > max(silentFor, silentFactor*time.Duration(s.longest.Load()))
}

// unsaved is how much work a sudden death would repeat.
func (s *Stopwatch) unsaved() time.Duration {
	saved := time.Duration(s.lastSave.Load()) // before the clock is read, as in Silence
	return s.sinceBegun() - saved
}

// Split returns how long the handler had run when it made the last report that its record
// has, and how long it ran after that. latest is its last report of all, leftOut says that
// the record lacks it.
func (s *Stopwatch) Split(latest *job.Progress, leftOut bool) (recorded, lost time.Duration) {
	took := s.Elapsed() // once: a handler that was abandoned may not have been stopped
	switch {
	case leftOut:
		recorded = time.Duration(s.lastSave.Load())
	case latest != s.seen:
		recorded = took // it came since the loop turned last
	default:
		recorded = time.Duration(s.lastReport.Load())
	}
	recorded = min(recorded, took)
	return recorded, took - recorded
}

// Stop records that the handler has returned, or was abandoned: its time afterwards does
// not count for the job. The first call counts.
func (s *Stopwatch) Stop() {
	if s.took.CompareAndSwap(0, int64(max(s.sinceBegun(), 1))) {
		s.clock.leave()
	}
}
