package lifecycle

import (
	"errors"
	"testing"
)

// step is one cell of the table as a person would write it down. A cell that
// is not among them has to be refused.
type step struct {
	from Position
	on   Event
	to   Position
}

// Every position a worker can be in, spelled out here apart from the
// rules under test.
var (
	cold      = Position{Start, 0}
	rewarming = Position{Recover, WasWarm}
	resuming  = Position{Resume, WasWarm}
	working   = Position{Process, WasWarm}
)

// down returns a position in Shutdown.
func down(facts Facts) Position {
	return Position{Shutdown, facts}
}

// walked lists every step there is, for a worker that was never warm and for a
// worker that was.
func walked() []step {
	steps := []step{
		{cold, Warm, rewarming},
		{cold, Notice, down(EventStands)},
		{cold, Hold, down(Held)},
		{cold, Terminate, down(EndRequested)},

		{rewarming, Known, resuming},
		{rewarming, Notice, down(WasWarm | EventStands)},
		{rewarming, Hold, down(WasWarm | Held)},
		{rewarming, Terminate, down(WasWarm | EndRequested)},

		{resuming, Ready, working},
		{resuming, Notice, down(WasWarm | EventStands)},
		{resuming, Hold, down(WasWarm | Held)},
		{resuming, Terminate, down(WasWarm | EndRequested)},

		{working, Notice, down(WasWarm | EventStands)},
		{working, Hold, down(WasWarm | Held)},
		{working, Terminate, down(WasWarm | EndRequested)},
	}
	for _, stands := range []Facts{0, EventStands} {
		for _, held := range []Facts{0, Held} {
			steps = append(steps, drainSteps(0, stands, held, cold)...)
			steps = append(steps, drainSteps(WasWarm, stands, held, rewarming)...)
			if stands|held != 0 {
				steps = append(steps, waitSteps(0, stands, held, cold)...)
				steps = append(steps, waitSteps(WasWarm, stands, held, rewarming)...)
			}
		}
	}
	return steps
}

// drainSteps lists the steps during a drain while an event stands or not, and an
// operator holds the worker or not; back is where work begins again.
func drainSteps(warm, stands, held Facts, back Position) []step {
	var (
		here   = down(warm | stands | held)
		ending = down(warm | stands | held | EndRequested)
		after  = down(warm | stands | held | WorkReleased)
	)
	if stands|held == 0 {
		after = back
	}
	steps := []step{
		{here, Notice, down(warm | EventStands | held)},
		{here, Hold, down(warm | stands | Held)},
		{here, Terminate, ending},
		{here, Drained, after},

		{ending, Notice, down(warm | EventStands | held | EndRequested)},
		{ending, Hold, down(warm | stands | Held | EndRequested)},
		{ending, Terminate, ending},
		{ending, Drained, stoppedWith(warm | stands | held)},
	}
	if stands != 0 {
		steps = append(steps, step{here, Withdrawn, down(warm | held)}, step{ending, Withdrawn, down(warm | held | EndRequested)})
	}
	if held != 0 {
		steps = append(steps, step{here, Unhold, down(warm | stands)}, step{ending, Unhold, down(warm | stands | EndRequested)})
	}
	return steps
}

// waitSteps lists the steps after a drain, of a worker that waits because an event
// stands, an operator holds it, or both.
func waitSteps(warm, stands, held Facts, back Position) []step {
	here := down(warm | stands | held | WorkReleased)
	steps := []step{
		{here, Notice, down(warm | EventStands | held | WorkReleased)},
		{here, Hold, down(warm | stands | Held | WorkReleased)},
		{here, Terminate, stoppedWith(warm | stands | held)},
		{here, Drained, here},
	}
	withdrawn, unheld := back, back
	if held != 0 {
		withdrawn = down(warm | held | WorkReleased)
	}
	if stands != 0 {
		unheld = down(warm | stands | WorkReleased)
		steps = append(steps, step{here, Withdrawn, withdrawn})
	}
	if held != 0 {
		steps = append(steps, step{here, Unhold, unheld})
	}
	return steps
}

// stoppedWith returns a position in Stopped.
func stoppedWith(facts Facts) Position {
	return Position{Stopped, facts | EndRequested | WorkReleased}
}

// TestNext goes through every event in every position a worker can be in: the
// listed steps are taken, all others are refused and change nothing.
func TestNext(t *testing.T) {
	want := map[Position]map[Event]Position{}
	for _, s := range walked() {
		if want[s.from] == nil {
			want[s.from] = make(map[Event]Position)
		}
		want[s.from][s.on] = s.to
		if s.to.State == Stopped {
			want[s.to] = nil // refuses everything
		}
	}
	for from, steps := range want {
		for _, on := range Events() {
			to, allowed := steps[on]
			got, err := Next(from, on)
			switch {
			case allowed && (err != nil || got != to):
				t.Errorf("Next(%s, %s) = %s, %v; want %s", from, on, got, err, to)
			case !allowed && !errors.Is(err, ErrRefused):
				t.Errorf("Next(%s, %s) = %s, %v; want %v", from, on, got, err, ErrRefused)
			case !allowed && got != from:
				t.Errorf("refused Next(%s, %s) moved to %s", from, on, got)
			}
		}
	}
}

// TestReachable compares the positions that the table reaches from Start with the
// positions that TestNext lists, so that neither has one the other does not know.
func TestReachable(t *testing.T) {
	listed := map[Position]bool{}
	for _, s := range walked() {
		listed[s.from], listed[s.to] = true, true
	}
	reached := reachable()
	for p := range reached {
		if !listed[p] {
			t.Errorf("%s is reachable and not listed", p)
		}
	}
	for p := range listed {
		if !reached[p] {
			t.Errorf("%s is listed and out of reach", p)
		}
	}
}

// TestRulesAreExact checks that no position and event fit two rules, regardless
// of the facts, and that every rule is used somewhere a worker can be.
func TestRulesAreExact(t *testing.T) {
	for i, r := range rules {
		used := false
		for p := range reachable() {
			used = used || r.fits(p, r.on)
		}
		if !used {
			t.Errorf("rule %d (%s on %s [%s]) is never used", i, r.from, r.on, r.condition())
		}
		for facts := range keeps(Shutdown) + 1 {
			p := Position{r.from, facts}
			for j, other := range rules[:i] {
				if r.fits(p, r.on) && other.fits(p, r.on) {
					t.Errorf("rules %d and %d both fit %s on %s", j, i, p, r.on)
				}
			}
		}
	}
}

// TestStoppedIsAlwaysInReach checks that no position is a trap: a worker that
// is asked to end and reports its drain stops, wherever it was.
func TestStoppedIsAlwaysInReach(t *testing.T) {
	for from := range reachable() {
		p := from
		for _, e := range []Event{Terminate, Drained} {
			if p.State != Stopped {
				p, _ = Next(p, e)
			}
		}
		if p.State != Stopped {
			t.Errorf("%s after terminate and drained = %s, want %s", from, p, Stopped)
		}
	}
}

// reachable returns every position that some sequence of events leads to.
func reachable() map[Position]bool {
	seen := map[Position]bool{{}: true}
	for queue := []Position{{}}; len(queue) > 0; queue = queue[1:] {
		for _, e := range Events() {
			if p, err := Next(queue[0], e); err == nil && !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	return seen
}
