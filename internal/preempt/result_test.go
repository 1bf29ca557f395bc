package preempt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
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

// TestWatcherTurns: the loop says so in time, also while no poll is answered.
func TestWatcherTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		c, err := NewClient("http://127.0.0.1:1", WithTransport(hangs))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		due, turns, timeouts := time.Now().Add(time.Second), 0, 0
		w := NewWatcher(c)
		w.Trace.Turned = func(now time.Time, within time.Duration) {
			if now.After(due) || within > blindAfter {
				t.Errorf("turned %s late, and again within %s", now.Sub(due), within)
			}
			due, turns = now.Add(within), turns+1
		}
		w.Trace.Polled = func(_ time.Time, result PollResult) {
			if result == PollTimeout {
				timeouts++
			}
		}
		w.Run(ctx, func(Observation) {})
		if turns < 12 || timeouts < 10 {
			t.Errorf("turns = %d, polls that timed out = %d in a minute, want both told", turns, timeouts)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type timeoutError struct{}

func (timeoutError) Error() string   { return "timed out" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }
