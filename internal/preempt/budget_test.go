package preempt

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/test/property"
)

// Whenever requests are wanted, no window has more than the slots allow, and what
// fits waits for nothing.
func TestSlotsHoldInAnyWindow(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		s := SlidingWindow{Limit: budgetRequests, Window: budgetWindow}
		var now time.Duration
		var granted []time.Duration
		for _, gap := range rapid.SliceOfN(rapid.IntRange(0, 700), 1, 60).Draw(t, "gaps in ms") {
			now += time.Duration(gap) * time.Millisecond
			urgency := Urgency(rapid.IntRange(int(Later), int(Poll)).Draw(t, "urgency"))
			at, ok := s.Reserve(now, urgency)
			if at < now || urgency == Poll && !ok || urgency == Later && ok != (at == now) {
				t.Fatalf("Take(%s, %d) = %s, %t, want a poll to have a slot, anything else one that is free now", now, urgency, at, ok)
			}
			if n := len(granted); n < budgetRequests && at != now {
				t.Fatalf("request %d waits %s, want none", n+1, at-now)
			}
			if ok {
				granted = append(granted, at)
			}
		}
		checkSlots(t, granted)
	})
}

// The same holds where polls sleep through their slots, give them back and ask
// again.
func TestSlotsHoldWhenSomeComeLate(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		s := SlidingWindow{Limit: budgetRequests, Window: budgetWindow}
		var now time.Duration
		var waiting, granted []time.Duration
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 700).Draw(t, "gap in ms")) * time.Millisecond
			if at, _ := s.Reserve(now, Poll); at == now {
				granted = append(granted, at)
			} else {
				waiting = append(waiting, at)
			}
			waiting = slices.DeleteFunc(waiting, func(at time.Duration) bool {
				if at > now {
					return false
				}
				if rapid.Bool().Draw(t, "on time") || at == now {
					granted = append(granted, at)
					return true
				}
				s.Release(at)
				if again, ok := s.Reserve(now, Later); ok {
					granted = append(granted, again)
				}
				return true
			})
		}
		checkSlots(t, granted)
	})
}

// checkSlots fails where more than the budget was sent in any window.
func checkSlots(t *rapid.T, granted []time.Duration) {
	slices.Sort(granted)
	for i := budgetRequests; i < len(granted); i++ {
		if span := granted[i] - granted[i-budgetRequests]; span < budgetWindow {
			t.Fatalf("%d requests within %s", budgetRequests+1, span)
		}
	}
}

// Polls that wait have their slots; a request that can wait asks again and again, and is
// sent when they leave one.
func TestPollsGoFirst(t *testing.T) {
	s := SlidingWindow{Limit: 2, Window: time.Second}
	for i, want := range []time.Duration{0, 0, time.Second, time.Second, 2 * time.Second} {
		if at, ok := s.Reserve(0, Poll); at != want || !ok {
			t.Errorf("poll %d at %s, want %s", i+1, at, want)
		}
	}
	if at, ok := s.Reserve(0, Later); ok || at != 2*time.Second {
		t.Errorf("what can wait = %s, %t, want to ask again at 2s", at, ok)
	}
	if at, ok := s.Reserve(time.Second, Later); ok {
		t.Errorf("what can wait goes at %s, before a poll that waits", at)
	}
	if at, ok := s.Reserve(2*time.Second, Later); !ok || at != 2*time.Second {
		t.Errorf("what can wait = %s, %t, want the slot that polls left", at, ok)
	}
}

func TestSlotsAreFullWhenNothingIsKnown(t *testing.T) {
	s := SlidingWindow{Limit: 2, Window: time.Second}
	s.Fill(time.Minute)
	if at, _ := s.Reserve(time.Minute, Poll); at != time.Minute+time.Second {
		t.Errorf("first poll at %s, want a window later", at)
	}
}
