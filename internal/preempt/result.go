package preempt

import (
	"context"
	"errors"
	"net"
)

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
