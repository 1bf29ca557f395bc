package preempt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"
)

func TestResultOf(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("read scheduled events: %w", err) }
	for _, row := range []struct {
		err  error
		want PollResult
	}{
		{nil, PollAnswered},
		{wrap(&StatusError{Status: 429}), PollThrottled},
		{wrap(&StatusError{Status: 500}), PollRefused},
		{wrap(&StatusError{Status: 404}), PollRefused},
		{wrap(ErrMalformed), PollRefused},
		{wrap(ErrTooLarge), PollRefused},
		{wrap(context.DeadlineExceeded), PollTimeout},
		{wrap(&net.OpError{Op: "dial", Err: timeoutError{}}), PollTimeout},
		{wrap(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), PollFailed},
		{errors.New("anything else"), PollFailed},
	} {
		got := resultOf(row.err)
		if got != row.want || !slices.Contains(PollResults(), got) {
			t.Errorf("result of a poll with %v = %s, want %s", row.err, got, row.want)
		}
	}
}

type timeoutError struct{}

func (timeoutError) Error() string   { return "timed out" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }
