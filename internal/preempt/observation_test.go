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

// good is the answer of poll number, made and received second seconds after
// noon, with evictions of these ids.
func good(number, second int, ids ...string) polled {
	at := noon.Add(time.Duration(second) * time.Second)
	doc := Document{Incarnation: "same", Date: at, ReceivedAt: at, Events: []Event{}}
	for _, id := range ids {
		doc.Events = append(doc.Events, Event{ID: id, Type: TypePreempt})
	}
	return polled{number: number, document: doc, at: at}
}

func TestAnswersCountInTheOrderOfAsking(t *testing.T) {
	other := good(1, 4, "x")
	other.document.Events[0].Type = TypeReboot
	undated := good(1, 4, "x")
	undated.document.Date = time.Time{}

	before := good(2, 1)
	before.document.Date = time.Time{}

	for _, tt := range []struct {
		name     string
		answers  []polled
		counts   bool // the last answer does
		changed  bool // and brings news
		preempts int  // in the last observation
	}{
		{"the first", []polled{good(1, 0)}, true, true, 0},
		{"the same again", []polled{good(1, 0), good(2, 1)}, true, false, 0},
		{"an eviction appears", []polled{good(1, 0), good(2, 1, "x")}, true, true, 1},
		{"an eviction goes", []polled{good(1, 0, "x"), good(2, 1)}, true, true, 0},
		{"a gap does not matter", []polled{good(1, 0), good(5, 4, "x")}, true, true, 1},
		{"older and late, nothing in it", []polled{good(2, 1, "x"), good(1, 1)}, false, false, 1},
		{"older and late, made later, nothing in it", []polled{good(2, 1, "x"), good(1, 4)}, false, false, 1},
		{"older and late, with an old eviction", []polled{good(2, 1), good(1, 0, "x")}, false, false, 0},
		{"older and late, made in the same second", []polled{good(2, 1), good(1, 1, "x")}, false, false, 0},
		{"older and late, made later, with a new eviction", []polled{good(2, 1), good(1, 4, "x")}, true, true, 1},
		{"the same where an eviction is known", []polled{good(2, 1, "x"), good(1, 4, "x")}, false, false, 1},
		{"the same with a reboot", []polled{good(2, 1), other}, false, false, 0},
		{"the same without a date", []polled{good(2, 1), undated}, false, false, 0},
		{"the same after one without a date", []polled{before, good(1, 4, "x")}, false, false, 0},
		{"which a newer answer may take back", []polled{good(2, 1), good(1, 4, "x"), good(3, 5)}, true, true, 0},
	} {
		s := watchState{answeredAt: noon}
		for i, a := range tt.answers {
			counts := s.add(a)
			o, news := s.observe(a.at)
			if last := i == len(tt.answers)-1; last && (counts != tt.counts || news != tt.changed || o.Changed != tt.changed) {
				t.Errorf("%s: counts = %t, news = %t, changed = %t, want %t, %t", tt.name, counts, news, o.Changed, tt.counts, tt.changed)
			}
		}
		if n := len(s.document.Events); n != tt.preempts {
			t.Errorf("%s: %d evictions at last, want %d", tt.name, n, tt.preempts)
		}
	}
}

func TestBlindnessIsReportedOnce(t *testing.T) {
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	oops := errors.New("oops")
	s := watchState{answeredAt: noon}
	expect := func(ms int, news, blind bool, since time.Time, err error) {
		t.Helper()
		o, told := s.observe(at(ms))
		if told != news {
			t.Fatalf("at %d ms: told %+v = %t, want %t", ms, o, told, news)
		}
		if o.Blind() != blind || !o.BlindSince.Equal(since) || !errors.Is(o.Err, err) {
			t.Errorf("at %d ms: blind = %t since %s with %v, want %t since %s with %v", ms, o.Blind(), o.BlindSince, o.Err, blind, since, err)
		}
	}
	never := time.Time{}

	expect(0, false, false, never, nil)
	expect(4999, false, false, never, nil)
	if got := s.untilNews(at(4999)); got != time.Millisecond {
		t.Errorf("wait just before being blind = %s, want 1ms", got)
	}
	expect(5000, true, true, noon, nil) // nothing but silence
	expect(9000, false, false, never, nil)
	if s.untilNews(at(9000)) <= 0 {
		t.Error("a blind watcher has to wake at once, want it to wait for an answer")
	}
	s.add(good(1, 10))
	expect(10000, true, false, never, nil)
	s.add(polled{number: 2, err: oops, at: at(11000)})
	expect(11000, false, false, never, nil)
	expect(15000, true, true, at(10000), oops)
	s.add(good(3, 16))
	expect(16000, true, false, never, nil)    // sees again, though the document is the same
	expect(21000, true, true, at(16000), nil) // the old failure is no reason for the new silence
	if s.document.ReceivedAt != at(16000) {
		t.Errorf("document was received at %s, want the latest", s.document.ReceivedAt)
	}
}

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

// TestWatcherTurns: the loop reports each iteration in time, even if no poll is
// answered.
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
