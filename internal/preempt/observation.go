package preempt

import (
	"context"
	"errors"
	"net"
	"time"
)

// blindAfter is how long without a good answer makes the watcher blind: as long
// as one slow poll may take, so that a single hiccup does not.
const blindAfter = pollTimeout

// Observation is what the watcher sees at a moment worth telling.
type Observation struct {
	// At is the local time of the observation.
	At time.Time

	// Changed says that Document is the first one or differs from that of the
	// observation before. If not, the observation is about blindness alone.
	Changed bool

	// Document is the newest good answer; the zero Document before the first.
	Document Document

	// BlindSince is zero while good answers arrive. Otherwise none has come for
	// five seconds or more, notices cannot be relied on, and this is the local
	// time of the last good one, or that at which the watcher started.
	BlindSince time.Time

	// Err is why the newest failed poll failed; nil while not blind, or when
	// polls hang and none has failed yet.
	Err error
}

// Blind reports whether no good answer has come for a while.
func (o Observation) Blind() bool { return !o.BlindSince.IsZero() }

// sight is what the watcher knows. It is pure: time comes in as an argument.
type sight struct {
	newest   int // number of the newest poll with a good answer; 0 before one
	document Document
	seenAt   time.Time // of the last good answer, or the start
	err      error     // of the newest failure since

	changed bool // the document has news that was not told yet
	blind   bool // as last told
}

func (s *sight) known() bool { return s.newest > 0 }

// take notes an answer and reports whether it is a good one that counts.
func (s *sight) take(a polled) bool {
	if a.err != nil {
		if a.number > s.newest {
			s.err = a.err
		}
		return false
	}
	if a.number < s.newest && !s.revealsPreempt(a.document) {
		return false
	}
	if !s.known() || !a.document.sameEvents(s.document) {
		s.changed = true
	}
	s.newest = max(s.newest, a.number)
	s.document, s.seenAt, s.err = a.document, a.at, nil
	return true
}

// revealsPreempt reports whether doc, the late answer to an older poll, still
// counts. It does if the service made it after the newest answer, by its own
// clock, and it shows an eviction that the newest does not: then the polls that
// should have shown it hang or failed, and waiting for them could cost the VM.
func (s *sight) revealsPreempt(doc Document) bool {
	if !doc.Date.After(s.document.Date) || s.document.Date.IsZero() {
		return false
	}
	for _, e := range doc.Events {
		if _, known := s.document.Event(e.ID); e.Type == TypePreempt && !known {
			return true
		}
	}
	return false
}

// observe returns what there is to tell at now, and whether there is anything.
// What it returned counts as told.
func (s *sight) observe(now time.Time) (Observation, bool) {
	blind := now.Sub(s.seenAt) >= blindAfter
	if !s.changed && blind == s.blind {
		return Observation{}, false
	}
	o := Observation{At: now, Changed: s.changed, Document: s.document}
	if blind {
		o.BlindSince, o.Err = s.seenAt, s.err
	}
	s.changed, s.blind = false, blind
	return o, true
}

// wait returns how long until there may be something to tell for want of an
// answer. To a blind watcher only an answer is news.
func (s *sight) wait(now time.Time) time.Duration {
	if s.blind {
		return blindAfter
	}
	return s.seenAt.Add(blindAfter).Sub(now)
}

// PollResult is how a poll ended, in a word.
type PollResult string

// How a poll ends.
const (
	PollAnswered  PollResult = "answered"  // with a document
	PollThrottled PollResult = "throttled" // 429: too many requests from this VM
	PollRefused   PollResult = "refused"   // with any other status, or with no document
	PollTimeout   PollResult = "timeout"   // without an answer in time
	PollFailed    PollResult = "failed"    // without a connection, or cut off
)

// PollResults returns all of them.
func PollResults() []PollResult {
	return []PollResult{PollAnswered, PollThrottled, PollRefused, PollTimeout, PollFailed}
}

// resultOf says in a word how a poll ended.
func resultOf(err error) PollResult {
	_, isStatus := errors.AsType[*StatusError](err)
	network, isNetwork := errors.AsType[net.Error](err)
	switch {
	case err == nil:
		return PollAnswered
	case isThrottled(err):
		return PollThrottled
	case isStatus, errors.Is(err, ErrMalformed), errors.Is(err, ErrTooLarge):
		return PollRefused
	case errors.Is(err, context.DeadlineExceeded), isNetwork && network.Timeout():
		return PollTimeout
	default:
		return PollFailed
	}
}
