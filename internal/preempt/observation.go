package preempt

import (
	"context"
	"errors"
	"net"
	"time"
)

const (
	// blindAfter is the time without a prompt answer after which the watcher is blind: as
	// long as one slow poll may take, so that one slow answer is not blindness.
	blindAfter = pollTimeout

	// doubtAfter is the time without a prompt answer after which the watcher polls in both
	// versions. A single poll that hangs causes no doubt.
	doubtAfter = blindAfter / 2
)

// Observation is a change that the watcher reports: a new document, or the begin or
// end of blindness.
type Observation struct {
	// At is the local time of the observation.
	At time.Time

	// Changed reports that Document is the first or differs from the previous
	// observation's. If not, the observation is about blindness alone.
	Changed bool

	// Document is the newest good answer; the zero Document before the first.
	Document Document

	// BlindSince is zero while good answers arrive in time. Otherwise there has been none
	// for five seconds or more, so that an eviction may go unnoticed, and this is the
	// local time of the last one, or of the watcher's start. Documents that come later
	// than in time are still reported.
	BlindSince time.Time

	// Err is the error of the newest failed poll; nil while not blind, or when polls
	// hang and none has failed yet.
	Err error
}

// Blind reports whether no good answer came in time for a while.
func (o Observation) Blind() bool { return !o.BlindSince.IsZero() }

// watchState holds the watcher's facts from the answers. It is pure: time is an argument.
type watchState struct {
	newest     int // number of the newest poll with a good answer; 0 before one
	document   Document
	answeredAt time.Time // of the last prompt answer, or the start
	err        error     // of the newest failure since

	changed bool // the document has changes that were not reported yet
	blind   bool // as last reported
}

func (s *watchState) hasDocument() bool { return s.newest > 0 }

// isBlind reports whether no answer came in time for blindAfter.
func (s *watchState) isBlind(now time.Time) bool { return now.Sub(s.answeredAt) >= blindAfter }

// inDoubt reports whether the version in use may be the reason that no answer comes.
func (s *watchState) inDoubt(now time.Time) bool { return now.Sub(s.answeredAt) >= doubtAfter }

// add records an answer, and reports whether it is a document that counts.
func (s *watchState) add(a polled) bool {
	if a.err != nil {
		if a.number > s.newest {
			s.err = a.err
		}
		return false
	}
	if a.number < s.newest && !s.revealsPreempt(a.document) {
		return false
	}
	if !s.hasDocument() || !a.document.sameEvents(s.document) {
		s.changed = true
	}
	s.newest = max(s.newest, a.number)
	s.document, s.err = a.document, nil
	if a.isPrompt() {
		s.answeredAt = a.at
	}
	return true
}

// revealsPreempt reports whether doc, the late answer to an older poll, still counts.
// It does if the service sent it after the newest answer, by its own clock, and it
// has an eviction that the newest lacks: then the polls that should have shown the
// eviction hang or failed, and waiting for them could waste the notice.
func (s *watchState) revealsPreempt(doc Document) bool {
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

// observe returns the observation to report at now, if there is one. It counts as
// reported then.
func (s *watchState) observe(now time.Time) (Observation, bool) {
	blind := s.isBlind(now)
	if !s.changed && blind == s.blind {
		return Observation{}, false
	}
	o := Observation{At: now, Changed: s.changed, Document: s.document}
	if blind {
		o.BlindSince, o.Err = s.answeredAt, s.err
	}
	s.changed, s.blind = false, blind
	return o, true
}

// untilNews returns how long until the watcher is blind unless it gets an answer. A
// blind watcher has nothing to report until then.
func (s *watchState) untilNews(now time.Time) time.Duration {
	if s.blind {
		return blindAfter
	}
	return s.answeredAt.Add(blindAfter).Sub(now)
}

// PollResult is how a poll ended, as a metric's label.
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

// resultOf returns how a poll with this error ended.
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
