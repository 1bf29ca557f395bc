package worker

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/test/property"
)

// unknownFleet is the size of a fleet that is not known.
func unknownFleet(string) (workers, idle int, asOf time.Time) { return 0, 0, time.Time{} }

// TestQueueRotation: queues that have jobs are asked in turn (round robin). A queue that
// was empty is skipped until its back-off ends, however often the others are asked.
func TestQueueRotation(t *testing.T) {
	a, b, c := &queue.Queue{}, &queue.Queue{}, &queue.Queue{}
	turns := newQueueRotation([]*queue.Queue{a, b, c}, nil, unknownFleet, retry.Jitter{})
	now := time.Now()
	ask := func(gives ...*queue.Queue) (asked []*queue.Queue) {
		for range 6 {
			s := turns.turn(now)
			if s == nil {
				break
			}
			gave := false
			for _, q := range gives {
				gave = gave || s.queue == q
			}
			turns.record(s, map[bool]claimResult{true: someWork, false: noMessages}[gave], now)
			asked = append(asked, s.queue)
		}
		return asked
	}
	demand := func(when string, got []*queue.Queue, want ...*queue.Queue) {
		t.Helper()
		names := map[*queue.Queue]string{a: "a", b: "b", c: "c"}
		in := func(queues []*queue.Queue) (out string) {
			for _, q := range queues {
				out += names[q]
			}
			return out
		}
		if in(got) != in(want) {
			t.Errorf("%s: asked %q, want %q", when, in(got), in(want))
		}
	}
	demand("all have jobs", ask(a, b, c), a, b, c, a, b, c)
	demand("b has none", ask(a, c), a, b, c, a, c, a)
	demand("all are empty", ask(), c, a)
	if turns.turn(now) != nil {
		t.Error("turn with no queue due returned one")
	}
	wait := turns.due(now).Sub(now)
	if low, high := pollDelays.First*3/4, pollDelays.First*5/4; wait < low || wait > high {
		t.Errorf("first back-off of three queues = %s, want %s to %s as with one", wait, low, high)
	}
	now = now.Add(pollDelays.First * 5 / 4)
	demand("all are due again", ask(b), b, c, a, b, b, b)
}

// TestFirstComesFirst: of four claims three are from the queue First while other queues have jobs, and
// all while they have none. It is polled half as often as they are, unless they have a backlog, and
// left alone while it is absent.
func TestFirstComesFirst(t *testing.T) {
	a, b, first := &queue.Queue{}, &queue.Queue{}, &queue.Queue{}
	names := map[*queue.Queue]string{a: "a", b: "b", first: "F"}
	now := time.Now()
	for _, row := range []struct {
		name string
		has  string // the queues with jobs
		want string
	}{
		{"all have jobs", "abF", "FFFaFFFbFFFa"},
		{"First has none", "ab", "Fabababababa"},
		{"First alone has jobs", "F", "FFFaFFFbFFFFF"},
	} {
		turns, asked := newQueueRotation([]*queue.Queue{a, b, first}, first, unknownFleet, retry.Jitter{}), ""
		for len(asked) < len(row.want) {
			s := turns.turn(now)
			if s == nil {
				break
			}
			asked += names[s.queue]
			turns.record(s, map[bool]claimResult{true: someWork, false: noMessages}[strings.Contains(row.has, names[s.queue])], now)
		}
		if asked != row.want {
			t.Errorf("%s: asked %q, want %q", row.name, asked, row.want)
		}
	}

	turns := newQueueRotation([]*queue.Queue{a, first}, first, unknownFleet, retry.Jitter{})
	wait := func(q *queue.Queue, gave claimResult) time.Duration {
		s := turns.of(q)
		for range 2 { // the polls of a fleet that has changed are spread
			s.empty = 10
			turns.record(s, gave, now)
		}
		return s.due.Sub(now).Round(time.Second)
	}
	usual, rare := wait(a, noMessages), wait(first, noMessages)
	turns.setBacklog(turns.of(a), true)
	if busy := wait(first, noMessages); usual != time.Second || rare != 2*time.Second || busy != time.Second {
		t.Errorf("time between polls = %s, of First %s, and beside a backlog %s; want 1s, 2s, 1s", usual, rare, busy)
	}
	if gone := wait(first, absent); gone < absentFor*3/4 {
		t.Errorf("an absent queue is left alone for %s, want about %s", gone, absentFor)
	}
}

// TestClaimOneAtATime: after a claim that may have hidden messages, and only then, a worker
// claims one message at a time for two visibility timeouts.
func TestClaimOneAtATime(t *testing.T) {
	refused := func(status int, code string) error {
		return fmt.Errorf("claim: %w", &azcore.ResponseError{StatusCode: status, ErrorCode: code})
	}
	now := time.Now()
	for _, tt := range []struct {
		name  string
		err   error
		after time.Duration
		want  int
	}{
		{"after a claim that worked", nil, 0, 32},
		{"after a claim that came too fast", refused(http.StatusServiceUnavailable, "ServerBusy"), 0, 32},
		{"after a claim without a role", refused(http.StatusForbidden, "AuthorizationPermissionMismatch"), 0, 32},
		{"after a claim from no queue", refused(http.StatusNotFound, "QueueNotFound"), 0, 32},
		{"after an error of the service", refused(http.StatusInternalServerError, "InternalError"), 0, 1},
		{"after a reply of a gateway", refused(http.StatusBadGateway, ""), 0, 1},
		{"after a request that is refused", refused(http.StatusBadRequest, "InvalidXmlNodeValue"), 0, 1},
		{"after a connection that broke once", fmt.Errorf("claim: %w", &url.Error{Op: "Get", Err: errors.New("connection reset")}), 0, 32},
		{"after a reply that cannot be read", errors.New("unexpected EOF"), 0, 1},
		{"one visibility timeout later", errors.New("unexpected EOF"), 30 * time.Second, 1},
		{"two visibility timeouts later", errors.New("unexpected EOF"), time.Minute, 32},
	} {
		s := &queueState{}
		s.observe(tt.err, now, 30*time.Second)
		if got := s.atMost(32, now.Add(tt.after)); got != tt.want {
			t.Errorf("%s: asks for %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestClaimOneAfterFailures: after three claims in a row that failed in any way a worker
// claims one message at a time, until one succeeds.
func TestClaimOneAfterFailures(t *testing.T) {
	q := &queue.Queue{}
	turns := newQueueRotation([]*queue.Queue{q}, nil, unknownFleet, retry.Jitter{})
	s, now := turns.of(q), time.Now()
	for n, want := range []int{32, 32, 32, 1, 1} {
		if got := s.atMost(32, now); got != want {
			t.Errorf("after %d refusals: asks for %d, want %d", n, got, want)
		}
		turns.record(s, refused, now)
	}
	turns.record(s, noMessages, now)
	if got := s.atMost(32, now); got != 32 {
		t.Errorf("after a claim that succeeded: asks for %d, want 32", got)
	}
}

// TestPollDelay: the back-off doubles with each empty poll up to longestPoll.
func TestPollDelay(t *testing.T) {
	if got := pollDelay(0); got != 0 {
		t.Errorf("pollDelay(0) = %s, want 0", got)
	}
	property.Check(t, func(t *rapid.T) {
		empty := rapid.IntRange(1, 1000).Draw(t, "empty")
		nominal := min(pollDelays.First<<min(empty-1, 10), longestPoll)
		if got := pollDelay(empty); got != nominal {
			t.Fatalf("pollDelay(%d) = %s, want %s", empty, got, nominal)
		}
	})
}
