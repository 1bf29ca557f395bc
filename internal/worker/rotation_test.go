package worker

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/testing/race"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/intake"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

// takeFromBoth makes a worker take from the main and from the on-demand queue.
func takeFromBoth(c *Config) {
	c.TakeFrom = []*queue.Queue{c.Queue, c.OnDemand}
	for i, a := range c.More {
		c.More[i].TakeFrom = []*queue.Queue{a.Queue, a.OnDemand}
	}
}

// unknownFleet is the size of a fleet that is not known.
func unknownFleet(string) (workers int, asOf time.Time) { return 0, time.Time{} }

// TestQueueRotation: queues that have jobs are asked in turn (round robin). One that
// was empty is skipped until its back-off ends, however often the others are asked.
func TestQueueRotation(t *testing.T) {
	a, b, c := &queue.Queue{}, &queue.Queue{}, &queue.Queue{}
	turns := newQueueRotation([]*queue.Queue{a, b, c}, unknownFleet, retry.Jitter{})
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

// claimsOf counts the claims from each queue.
func claimsOf(b *testbed) func(name string) int {
	var mu sync.Mutex
	claims := map[string]int{}
	b.server.OnResult(func(r storage.Result) {
		if r.Operation == storage.OpGetMessages {
			mu.Lock()
			defer mu.Unlock()
			claims[r.Queue]++
		}
	})
	return func(name string) int {
		mu.Lock()
		defer mu.Unlock()
		return claims[name]
	}
}

// TestIdlePolls: a worker without work asks each of two queues as often as a single one.
func TestIdlePolls(t *testing.T) {
	race.Skip(t)
	const idle = time.Hour
	polls := map[string]int{}
	for name, change := range map[string]func(*Config){"one": func(*Config) {}, "two": takeFromBoth} {
		inBubble(t, func(t *testing.T, b *testbed) {
			claims := claimsOf(b)
			b.start("vm_0", job.Kinds{"echo": echo}, change)
			time.Sleep(idle)
			polls[name] = claims(b.names.Queue) + claims(b.names.OnDemand)
			if one, other := claims(b.names.Queue), claims(b.names.OnDemand); name == "two" && (one < other-other/5 || one > other+other/5) {
				t.Errorf("polls of the two queues = %d and %d, want as many of each", one, other)
			}
		})
	}
	t.Logf("polls of an idle worker in %s: %d of one queue, %d of two", idle, polls["one"], polls["two"])
	// Each idle time begins with a few short waits, and the waits vary by chance.
	for name, want := range map[string]int{"one": int(idle / intake.PollEvery), "two": 2 * int(idle/intake.PollEvery)} {
		if got := polls[name]; got < want*95/100 || got > want*105/100 {
			t.Errorf("polls with queues: %s = %d, want about %d", name, got, want)
		}
	}
}

// TestShortJobCostOfTwoQueues: beside a queue with jobs, an empty one adds a few polls
// to the storage calls and nothing else.
func TestShortJobCostOfTwoQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		const jobs = 32 * 20
		for i := range jobs {
			b.put(fmt.Sprintf("job-%d", i), "echo", "1")
		}
		claims := claimsOf(b)
		began := time.Now()
		b.start("vm_0", job.Kinds{"echo": echo}, takeFromBoth, func(c *Config) { c.Concurrency = 32 })
		b.waitFor("all jobs gone", time.Minute, func() bool { return b.messagesLeft() == 0 })
		if n := claims(b.names.Queue); n < jobs/32 || n > jobs/32+1 {
			t.Errorf("claims from the queue of %d jobs = %d, want %d, or one more that found it empty", jobs, n, jobs/32)
		}
		most := 1
		for asked, delay := time.Duration(0), 2*pollDelays.First*3/4; asked+delay < time.Since(began); delay *= 2 {
			most, asked = most+1, asked+delay
		}
		if n := claims(b.names.OnDemand); n < 1 || n > most {
			t.Errorf("claims from the empty queue in %s = %d, want 1 to %d", time.Since(began), n, most)
		}
	})
}

// TestNoQueueStarves: a worker does the jobs of two queues with a backlog at the same
// rate, whatever their lengths.
func TestNoQueueStarves(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		for i := range 200 {
			b.put(fmt.Sprintf("many-%d", i), "steps", "")
		}
		for i := range 20 {
			b.putOn(b.onDemand, fmt.Sprintf("few-%d", i), "steps", "")
		}
		b.start("vm_0", job.Kinds{"steps": &steps{n: 1, each: time.Second}}, takeFromBoth, func(c *Config) { c.Concurrency = 1 })
		b.waitFor("the short queue is empty", time.Minute, func() bool { return len(b.server.Messages(b.names.OnDemand)) == 0 })
		if done := 200 - len(b.server.Messages(b.names.Queue)); done < 15 || done > 25 {
			t.Errorf("jobs of the long queue done by then = %d, want about as many as the 20 of the short one", done)
		}
	})
}

// TestOneQueueGone: a queue that is deleted while workers take from it does not
// keep them from the other.
func TestOneQueueGone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		p := b.start("vm_0", job.Kinds{"echo": echo}, takeFromBoth)
		time.Sleep(20 * time.Second)
		if _, err := b.account(b.server.Transport()).Queue(b.names.OnDemand).Delete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		claims := claimsOf(b)
		time.Sleep(10 * time.Minute)
		if n := claims(b.names.OnDemand); n < 30 || n > 60 {
			t.Errorf("claims from a queue that is gone in 10 min = %d, want one every 16s", n)
		}
		if n := len(p.log.find("no messages claimed; trying again")); n == 0 {
			t.Error("log has no line about the queue that is gone")
		}
		for i := range 100 {
			b.put(fmt.Sprint(i), "echo", "1")
		}
		began := time.Now()
		b.waitFor("the other queue is empty", time.Minute, func() bool { return b.messagesLeft() == 0 })
		synctest.Wait()
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("100 jobs of the other queue took %s, want one poll and a moment", took)
		}
	})
}

// TestUnreadableMessage: one message makes every reply that contains it unreadable.
// The other messages of the first claim wait for their visibility timeout once, not
// each time that this one is claimed.
func TestUnreadableMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.putText("no XML parser can read this")
		bad := b.server.Messages(b.names.Queue)[0].ID
		const jobs = 100
		for i := range jobs {
			b.put(fmt.Sprintf("job-%d", i), "echo", "1")
		}
		b.server.OnCall(func(storage.Call) storage.Fault {
			return storage.Fault{SpoilReply: func(r storage.Result) bool { return slices.Contains(r.MessageIDs, bad) }}
		})
		p := b.start("vm_0", job.Kinds{"echo": echo}, func(c *Config) { c.Concurrency = 32 })
		const most = 55 * time.Second // a visibility timeout, and two polls after failed claims
		b.waitFor("all other jobs done", most, func() bool { return b.messagesLeft() == 1 })
		time.Sleep(5 * time.Minute) // in which the message becomes visible several times
		begun := time.Now()
		for i := range jobs {
			b.put(fmt.Sprintf("later-%d", i), "echo", "1")
		}
		b.waitFor("later jobs done", 15*time.Second, func() bool { return b.messagesLeft() == 1 })
		t.Logf("%d jobs beside the message took %s", jobs, time.Since(begun))
		lines := p.log.find("no messages claimed; trying again")
		if len(lines) == 0 {
			t.Fatal("the log has no line about a claim that failed")
		}
		if n := lines[0]["next_claims_ask_for"]; n != 1.0 {
			t.Errorf("next_claims_ask_for in the first line = %v, want 1: %v", n, lines[0])
		}
	})
}

// TestClaimOneAtATime: after a claim whose reply could not be read, and only then, a
// worker claims one message at a time for two visibility timeouts.
func TestClaimOneAtATime(t *testing.T) {
	refused := &azcore.ResponseError{StatusCode: http.StatusServiceUnavailable, ErrorCode: "ServerBusy"}
	now := time.Now()
	for _, tt := range []struct {
		name  string
		err   error
		after time.Duration
		want  int
	}{
		{"after a claim that worked", nil, 0, 32},
		{"after a refusal, which claims nothing", fmt.Errorf("claim: %w", refused), 0, 32},
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

// TestPollDelay: the back-off doubles with each empty poll up to longestPoll.
func TestPollDelay(t *testing.T) {
	if got := pollDelay(0); got != 0 {
		t.Errorf("pollDelay(0) = %s, want 0", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		empty := rapid.IntRange(1, 1000).Draw(t, "empty")
		nominal := min(pollDelays.First<<min(empty-1, 10), longestPoll)
		if got := pollDelay(empty); got != nominal {
			t.Fatalf("pollDelay(%d) = %s, want %s", empty, got, nominal)
		}
	})
}
