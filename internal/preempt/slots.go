package preempt

import (
	"slices"
	"time"
)

// Urgency orders requests where the budget is short.
type Urgency int

const (
	// Later is for what can wait: finding out the VM's name, acknowledging. It
	// takes only what polls leave.
	Later Urgency = iota

	// Poll is for reading the scheduled events. It is sent as soon as the budget
	// allows, before whatever else waits.
	Poll
)

// Slots says when a request may be sent, so that at most Most are sent in any
// Window. It is a sliding window, not a bucket: a bucket allows twice the rate
// for a moment. It is pure: time comes in as an argument, measured from any
// fixed moment.
type Slots struct {
	Most   int
	Window time.Duration

	// Sent are the times of the latest requests, Most of them at most, oldest
	// first. Polls that wait have theirs in the future.
	Sent []time.Duration
}

// Take returns when a request that is ready at now may be sent, which is now or
// later. A poll has that slot then. Anything else has it only if it is free now,
// which ok says; otherwise it asks again at that time, since a poll may take it.
func (s *Slots) Take(now time.Duration, u Urgency) (at time.Duration, ok bool) {
	at = now
	if n := len(s.Sent); n >= s.Most {
		at = max(at, s.Sent[n-s.Most]+s.Window)
	}
	if u != Poll && at > now {
		return at, false
	}
	s.Sent = append(s.Sent, at)
	slices.Sort(s.Sent)
	s.Sent = slices.Clone(s.Sent[max(len(s.Sent)-s.Most, 0):])
	return at, true
}

// Return gives back a slot that was not used. One that is not among the latest has
// no bearing on what may be sent any more.
func (s *Slots) Return(at time.Duration) {
	if i := slices.Index(s.Sent, at); i >= 0 {
		s.Sent = slices.Delete(slices.Clone(s.Sent), i, i+1)
	}
}

// Fill takes every slot there is at now, for when it is not known what was sent
// before.
func (s *Slots) Fill(now time.Duration) {
	s.Sent = slices.Repeat([]time.Duration{now}, s.Most)
}
