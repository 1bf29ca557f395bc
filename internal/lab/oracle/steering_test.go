package oracle

import (
	"strings"
	"testing"
)

// Control documents, as operators write them.
const (
	nothingAsked = `{"v":1,"revision":1}`
	pausedAll    = `{"v":1,"revision":2,"pause":{"at":"2026-03-09T12:00:00Z"}}`
	drainedAll   = `{"v":1,"revision":2,"drain_all":{"at":"2026-03-09T12:00:00Z"}}`
	drainedA     = `{"v":1,"revision":2,"drain":{"a":{"at":"2026-03-09T12:00:00Z"}}}`
	cancelledJ   = `{"v":1,"revision":2,"cancels":[{"id":"j","at":"2026-03-09T12:00:00Z"}]}`
)

// steered feeds what happens, with the second at which it does.
type steered struct {
	t *testing.T
	Steering
	broken []Violation
}

func (s *steered) document(second int, text string) {
	s.t.Helper()
	broken, err := s.Follow([]byte(text), at(second))
	if err != nil {
		s.t.Error(err)
	}
	s.broken = append(s.broken, broken...)
	if text == cancelledJ {
		s.Cancelled("j", at(second))
	}
}

func (s *steered) claims(worker string, second int) {
	s.broken = append(s.broken, s.Claimed(worker, at(second))...)
}

func (s *steered) runs(worker string, put, from, to int) {
	s.broken = append(s.broken, s.Started(worker, "j", at(put), at(from))...)
	s.broken = append(s.broken, s.Ended(worker, "j", at(to))...)
}

// TestSteering has histories that break each rule, and those next to them that break
// none.
func TestSteering(t *testing.T) {
	for name, row := range map[string]struct {
		happens func(*steered)
		want    string // of the one violation; empty for none
		stopped int
	}{
		"nothing asked":       {happens: func(s *steered) { s.claims("a", 100); s.runs("a", 0, 100, 900) }},
		"paused a moment ago": {happens: func(s *steered) { s.document(0, pausedAll); s.claims("a", 20) }},
		"claims while paused": {happens: func(s *steered) { s.document(0, pausedAll); s.claims("a", 21) },
			want: "a claims 21s after claiming was paused"},
		"pause written again": {happens: func(s *steered) { s.document(0, pausedAll); s.document(15, pausedAll); s.claims("a", 21) },
			want: "a claims 21s after"},
		"runs while paused":  {happens: func(s *steered) { s.document(0, pausedAll); s.runs("a", 0, 5, 600) }},
		"unpaused":           {happens: func(s *steered) { s.document(0, pausedAll); s.document(30, nothingAsked); s.claims("a", 31) }},
		"blind while paused": {happens: func(s *steered) { s.document(0, pausedAll); s.Blind("a", at(60)); s.claims("a", 79) }},
		"not blind any more": {happens: func(s *steered) {
			s.document(0, pausedAll)
			s.Blind("a", at(60))
			s.Blind("a", at(9))
			s.claims("a", 81)
		}, want: "a claims 21s after"},
		"another is blind": {happens: func(s *steered) { s.document(0, pausedAll); s.Blind("b", at(60)); s.claims("a", 30) },
			want: "a claims 30s after"},
		"drained, claims": {happens: func(s *steered) { s.document(0, drainedA); s.claims("b", 60); s.claims("a", 61) },
			want: "a claims 1m1s after the worker was drained"},
		"all drained, claims": {happens: func(s *steered) { s.document(0, drainedAll); s.claims("b", 60) },
			want: "b claims 1m0s after the worker was drained"},
		"drained, hands over": {happens: func(s *steered) { s.document(10, drainedA); s.runs("a", 0, 11, 40) }, stopped: 1},
		"drained, holds its job": {happens: func(s *steered) { s.document(10, drainedA); s.runs("a", 0, 11, 41) },
			want: "a runs job j for 31s after", stopped: 1},
		"drained and resumed": {happens: func(s *steered) {
			s.Started("a", "j", at(0), at(0))
			s.document(10, drainedA)
			s.document(30, nothingAsked)
			s.runs("a", 0, 31, 90)
		}},
		"held to the resume": {happens: func(s *steered) {
			s.Started("a", "j", at(0), at(0))
			s.document(10, drainedA)
			s.document(50, nothingAsked)
		}, want: "a runs job j for 40s after"},
		"all drained, one named": {happens: func(s *steered) {
			s.document(10, drainedAll)
			s.document(20, drainedA)
			s.claims("a", 35)
			s.claims("b", 99)
		}},
		"cancelled, stops": {happens: func(s *steered) { s.Started("a", "j", at(0), at(1)); s.document(10, cancelledJ); s.end(40) },
			stopped: 1},
		"cancelled, runs on": {happens: func(s *steered) { s.Started("a", "j", at(0), at(1)); s.document(10, cancelledJ); s.end(41) },
			want: "a runs job j for 31s after the job was cancelled", stopped: 1},
		"cancelled, found at a claim": {happens: func(s *steered) {
			s.Started("a", "j", at(0), at(1))
			s.document(10, cancelledJ)
			s.claims("b",
				50)
		}, want: "a runs job j for 40s after the job was cancelled"},
		"cancelled, no longer named": {happens: func(s *steered) {
			s.Started("a", "j", at(0), at(1))
			s.document(10, cancelledJ)
			s.document(20, nothingAsked)
			s.end(60)
		}, want: "a runs job j for 50s after", stopped: 1},
		"cancelled, blind": {happens: func(s *steered) {
			s.Started("a", "j", at(0), at(1))
			s.document(10, cancelledJ)
			s.Blind("a", at(99))
			s.end(120)
		}},
		"cancelled, then started": {happens: func(s *steered) { s.document(10, cancelledJ); s.runs("a", 5, 31, 32) },
			want: "a starts job j 21s after it was cancelled"},
		"cancelled, started at once": {happens: func(s *steered) { s.document(10, cancelledJ); s.runs("a", 5, 30, 32) }},
		"named, not cancelled":       {happens: func(s *steered) { s.document(10, cancelledJ); s.cancelled = nil; s.runs("a", 5, 50, 99) }},
		"cancelled later": {happens: func(s *steered) {
			s.Started("a", "j", at(0), at(1))
			s.document(10, cancelledJ)
			s.cancelled = nil
			s.Cancelled("j", at(20))
			s.end(50)
		}, stopped: 1},
		"cancelled, not named": {happens: func(s *steered) { s.Started("a", "j", at(0), at(1)); s.Cancelled("j", at(20)); s.end(99) }},
		"put after the cancel": {happens: func(s *steered) { s.document(10, cancelledJ); s.runs("a", 11, 50, 99) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := &steered{t: t}
			row.happens(s)
			text := ""
			for _, v := range s.broken {
				if v.Rule != Disobeyed {
					t.Errorf("rule = %d, want Disobeyed", v.Rule)
				}
				text += v.Text + "\n"
			}
			if wanted := row.want != ""; len(s.broken) > 1 || wanted != (text != "") || !strings.HasPrefix(text, row.want) {
				t.Errorf("violations = %q, want %q", text, row.want)
			}
			if s.Stopped != row.stopped {
				t.Errorf("Stopped = %d, want %d", s.Stopped, row.stopped)
			}
		})
	}
}

// end is the end of the job's handler on worker a.
func (s *steered) end(second int) { s.broken = append(s.broken, s.Ended("a", "j", at(second))...) }

// TestWorks: a worker has to claim again a moment after the end of a pause or drain.
func TestWorks(t *testing.T) {
	s := &steered{t: t}
	for _, step := range []struct {
		second   int
		document string
		a, b     bool
	}{
		{0, nothingAsked, true, true},
		{10, drainedA, false, true},
		{30, pausedAll, false, false},
		{60, nothingAsked, false, false},
		{81, nothingAsked, true, true},
	} {
		s.document(step.second, step.document)
		if a, b := s.Works("a", at(step.second)), s.Works("b", at(step.second)); a != step.a || b != step.b {
			t.Errorf("at %d s: Works = %t, %t, want %t, %t", step.second, a, b, step.a, step.b)
		}
	}
	if _, err := s.Follow([]byte(`[]`), at(90)); err == nil {
		t.Error("Follow of another document = nil, want an error")
	}
}
