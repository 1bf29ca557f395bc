package jobtest

import (
	"bytes"
	"fmt"

	"github.com/spotworker/spotworker/job"
)

// take looks at report number n and keeps a copy of its state. late says that the
// context had been cancelled before.
func (r *run) take(p *job.Progress, n int, late bool) {
	r.stillThere()
	r.checkFraction(p, n)
	if p.HasState() && (r.held == nil || !p.SameState(r.held)) {
		r.takeState(p, n)
		if late {
			r.countLate()
		}
	}
	if r.moment != nil && r.moment.recorded >= n && r.current != nil {
		r.marked = r.current // the last one that is asked for stays
	}
}

// takeState keeps a copy of a state that was not reported before.
func (r *run) takeState(p *job.Progress, n int) {
	s, err := capture(p)
	switch {
	case err != nil:
		r.fail(&fault{what: "a state cannot be recorded", detail: fmt.Sprintf("report %d: %v", n, err)})
		return
	case !s.streamed && len(s.bytes) > job.MaxState:
		r.fail(&fault{what: "a state is too large", detail: fmt.Sprintf("report %d has a state of %d bytes; at most %d are allowed in one piece", n, len(s.bytes), job.MaxState), hint: "Report it as a stream."})
	}
	s.source = fmt.Sprintf("report %d of run %d", n, r.number)
	r.held, r.current = p, s
	if r.places == nil {
		r.repeats = r.learned.add(s) || r.repeats
	}
	r.checkOrder(s, n)
}

// stillThere checks that the last state is what it was when it was reported: the
// worker may read it until there is another.
func (r *run) stillThere() {
	if r.held == nil {
		return
	}
	now, err := capture(r.held)
	switch {
	case err != nil:
		r.fail(&fault{what: "a state was changed after it was reported", detail: fmt.Sprintf("the stream of %s does not open or read any more: %v", r.current.source, err), hint: "Keep what a stream reads until a later state was reported; remove it in a Cleanup."})
	case !bytes.Equal(now.bytes, r.current.bytes):
		r.fail(&fault{what: "a state was changed after it was reported", detail: fmt.Sprintf("the state of %s was %s and became %s", r.current.source, show(r.current.bytes), show(now.bytes)), hint: "The worker reads it at any time until there is another: hand over fresh memory, or a file that is not written any more."})
	}
}

func (r *run) checkFraction(p *job.Progress, n int) {
	switch {
	case !(p.Fraction >= 0 && p.Fraction <= 1): // which NaN is not either
		r.fail(&fault{what: "a fraction is out of range", detail: fmt.Sprintf("report %d has fraction %v; it is a part of 1", n, p.Fraction)})
	case p.Fraction == 0: // not given
	case p.Fraction < r.highest.fraction:
		r.fail(&fault{what: "progress goes backwards", detail: fmt.Sprintf("report %d has fraction %.3g after %.3g", n, p.Fraction, r.highest.fraction), hint: "Go on from the recorded state: j.Saved()."})
	default:
		r.highest.fraction = p.Fraction
	}
}

// checkOrder fails where a state comes again that the job had left behind.
func (r *run) checkOrder(s *state, n int) {
	s.rank = r.places[s.sum()]
	switch {
	case s.rank == 0: // nothing is known of it
	case s.rank < r.highest.rank:
		r.fail(&fault{what: "progress goes backwards", detail: fmt.Sprintf("report %d has the state %s, which is state %d of an uninterrupted run; the job had come to state %d", n, show(s.bytes), s.rank, r.highest.rank), hint: "Go on from the recorded state: j.Saved()."})
	default:
		r.highest.rank = s.rank
	}
}

// countLate counts a state that was reported after the stop.
func (r *run) countLate() {
	r.mu.Lock()
	r.late++
	late := r.late
	r.mu.Unlock()
	if late > r.c.LateReports {
		r.fail(ignoresContext(fmt.Sprintf("it reported %s after its context was cancelled; %d allowed (LateReports)", count(late, "more state"), r.c.LateReports)))
	}
}

func ignoresContext(detail string) *fault {
	return &fault{what: "the handler ignores its context", detail: detail, hint: "Look at ctx.Err() between two steps, and pass ctx to whatever waits."}
}
