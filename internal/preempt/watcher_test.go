package preempt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
)

// watch runs a watcher of c until the returned function is called, which waits for it and
// returns its observations. For use inside a bubble.
func watch(t *testing.T, c *Client) (stop func() []Observation) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var seen []Observation
	done := make(chan struct{})
	go func() {
		defer close(done)
		NewWatcher(c).Run(ctx, func(o Observation) { seen = append(seen, o) })
	}()
	return func() []Observation {
		cancel()
		<-done
		return seen
	}
}

// seenAfter returns how long after from the event was reported first, or -1.
func seenAfter(seen []Observation, id string, from time.Time) time.Duration {
	for _, o := range seen {
		if _, shows := o.Document.Event(id); shows {
			return o.At.Sub(from)
		}
	}
	return -1
}

// preemptAfter watches the VM, announces its eviction after the given time and
// returns how long that took to be reported.
func preemptAfter(t *testing.T, s *imds.Server, c *Client, delay time.Duration) time.Duration {
	t.Helper()
	stop := watch(t, c)
	time.Sleep(delay)
	announced := time.Now()
	id, err := s.SimulateEviction("a")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Second)
	return seenAfter(stop(), id, announced)
}

func TestPreemptIsSeenWithinASecond(t *testing.T) {
	for delay := time.Duration(0); delay < 3*time.Second; delay += 130 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			s, _, c := emulate(t, imds.Options{})
			if took := preemptAfter(t, s, c, delay); took < 0 || took > time.Second {
				t.Errorf("eviction announced after %s was seen within %s, want at most 1s", delay, took)
			}
		})
	}
}

// One poll in ten hangs for five seconds, whenever the eviction comes.
func TestAHangingPollDoesNotBlindTheWatcher(t *testing.T) {
	for name, fault := range map[string]imds.Fault{
		"late and fresh": {Delay: 5 * time.Second},
		"late and stale": {Hold: 5 * time.Second},
		"just in time":   {Hold: 4900 * time.Millisecond},
	} {
		var worst time.Duration
		for delay := time.Duration(0); delay < 25*time.Second; delay += 290 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				s, vm, c := emulate(t, imds.Options{})
				s.OnRequest(func(r imds.Request) imds.Fault {
					if r.N%10 == 0 {
						return fault
					}
					return imds.Fault{}
				})
				took := preemptAfter(t, s, c, delay)
				if took < 0 || took > 2050*time.Millisecond {
					t.Errorf("%s: eviction announced after %s was seen within %s, want at most 2.05s", name, delay, took)
				}
				worst = max(worst, took)
				if busiest := vm.Stats().BusiestSecond; busiest > 5 {
					t.Errorf("%s: %d requests in one second, want at most 5", name, busiest)
				}
			})
		}
		if worst <= time.Second {
			t.Errorf("%s: worst case %s, want more than one poll: the fault never hit", name, worst)
		}
		t.Logf("%s: worst case %s", name, worst)
	}
}

// troubles are ways for a service to fail. Each lasts for half a minute and ends.
var troubles = map[string]imds.Fault{
	"404":       {Status: http.StatusNotFound},
	"410":       {Status: http.StatusGone},
	"redirect":  {Status: http.StatusFound, Location: "http://127.0.0.1:1/elsewhere"},
	"429":       {Status: http.StatusTooManyRequests},
	"500":       {Status: http.StatusInternalServerError},
	"garbage":   {Body: []byte("<html>")},
	"an error":  {Body: []byte(`{"error":"x"}`)},
	"oversize":  {Body: make([]byte, maxAnswer+1)},
	"cut":       {Cut: true},
	"late cut":  {Delay: 1500 * time.Millisecond, Cut: true},
	"hang":      {Hang: true},
	"slow 500":  {Delay: 3 * time.Second, Status: http.StatusInternalServerError},
	"very slow": {Hold: 4 * time.Second},
}

// TestAFailedPollIsRepeated: for any failure of the first two polls, they are repeated
// after 250 ms and 500 ms, or 2 s where there were too many requests.
func TestAFailedPollIsRepeated(t *testing.T) {
	const ms = time.Millisecond
	soon, late := []time.Duration{0, 250 * ms, 750 * ms, 1750 * ms}, []time.Duration{0, 2000 * ms, 4000 * ms, 5000 * ms}
	for name, want := range map[string][]time.Duration{
		"404": soon, "410": soon, "500": soon, "redirect": soon, "garbage": soon, "an error": soon, "oversize": soon, "cut": soon,
		"429": late,
	} {
		synctest.Test(t, func(t *testing.T) {
			s, vm, c := emulate(t, imds.Options{})
			s.OnRequest(func(r imds.Request) imds.Fault {
				if r.N <= 2 {
					return troubles[name]
				}
				return imds.Fault{}
			})
			begin := time.Now()
			stop := watch(t, c)
			time.Sleep(5500 * ms)
			stop()
			var got []time.Duration
			for _, r := range vm.Stats().Recent[:len(want)] {
				got = append(got, r.At.Sub(begin))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: polls were sent after %v, want %v", name, got, want)
			}
		})
	}
}

// TestGoneFor70Seconds: so long may a 410 last, says the service. An eviction
// that was announced in the meantime is seen within a delay of its end.
func TestGoneFor70Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, vm, c := emulate(t, imds.Options{})
		end := time.Now().Add(70 * time.Second)
		s.OnRequest(func(imds.Request) imds.Fault {
			if time.Now().Before(end) {
				return imds.Fault{Status: http.StatusGone}
			}
			return imds.Fault{}
		})
		if took := preemptAfter(t, s, c, 69*time.Second); took < time.Second || took > time.Second+longestRetry {
			t.Errorf("eviction was seen %s after it was announced, want 1s to %s", took, time.Second+longestRetry)
		}
		if n := vm.Stats().Requests; n > 70 {
			t.Errorf("%d requests in 89s of which 70 were 410, want fewer than one a second", n)
		}
	})
}

// checkPolls wants a poll at least every two seconds, and never more than five
// requests in a second.
func checkPolls(t *testing.T, vm *imds.Guest) {
	t.Helper()
	stats := vm.Stats()
	if stats.BusiestSecond > 5 {
		t.Errorf("%d requests in one second, want at most 5", stats.BusiestSecond)
	}
	var last time.Time
	for _, r := range stats.Recent {
		if r.Path != "/metadata/scheduledevents" {
			continue
		}
		if gap := r.At.Sub(last); !last.IsZero() && gap > 2*time.Second {
			t.Errorf("%s without a poll, want at most 2s", gap)
		}
		last = r.At
	}
}

// Troubles of all kinds at random, with a discovery at the same time: the limits
// hold, and good answers are seen.
func TestRandomTroubleKeepsTheLimits(t *testing.T) {
	var kinds []imds.Fault
	for name, fault := range troubles {
		if name != "oversize" { // which costs more time than all others
			kinds = append(kinds, fault)
		}
	}
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			s, vm, c := emulate(t, imds.Options{})
			var mu sync.Mutex // requests come from several goroutines
			random := rand.New(rand.NewPCG(seed, 0))
			draw := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			s.OnRequest(func(imds.Request) imds.Fault {
				if draw(3) == 0 {
					return imds.Fault{}
				}
				return kinds[draw(len(kinds))]
			})
			stop := watch(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			for ctx.Err() == nil {
				_, _ = c.Discover(ctx, nil)
				time.Sleep(time.Duration(1000+draw(500)) * time.Millisecond)
			}
			seen := stop()
			checkPolls(t, vm)
			if n := vm.Stats().Throttled; n > 0 {
				t.Errorf("seed %d: the service refused %d requests, want none", seed, n)
			}
			if len(seen) == 0 {
				t.Errorf("seed %d: nothing was ever seen", seed)
			}
		})
	}
}

func TestQuietServiceIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, vm, c := emulate(t, imds.Options{})
		stop := watch(t, c)
		time.Sleep(time.Minute)
		seen := stop()
		if len(seen) != 1 || !seen[0].Changed || seen[0].Blind() || seen[0].Document.Incarnation != "1" {
			t.Errorf("reported %+v, want the first document and no more", seen)
		}
		if n := vm.Stats().Requests; n != 61 && n != 60 {
			t.Errorf("%d polls in a minute, want one a second", n)
		}
		if busiest := vm.Stats().BusiestSecond; busiest != 1 {
			t.Errorf("%d polls in one second, want 1", busiest)
		}
	})
}

func TestEveryChangeIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, c := emulate(t, imds.Options{})
		stop := watch(t, c)
		time.Sleep(3500 * time.Millisecond)
		id, err := s.SimulateEviction("a")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second) // NotBefore passes
		s.Complete(id)
		time.Sleep(10 * time.Second)
		seen := stop()

		var got []string
		for _, o := range seen {
			status := "none"
			if e, ok := o.Document.Event(id); ok {
				status = e.Status
			}
			got = append(got, status)
		}
		if want := "[none Scheduled Started none]"; fmt.Sprint(got) != want {
			t.Errorf("statuses reported = %v, want %s", got, want)
		}
	})
}

// A service that restarts its numbering, as after a move to another host, may meet the
// old number with other events.
func TestEqualIncarnationDoesNotHideAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, c := emulate(t, imds.Options{})
		stop := watch(t, c)
		time.Sleep(2500 * time.Millisecond)
		s.OnRequest(func(imds.Request) imds.Fault {
			return imds.Fault{Body: []byte(`{"DocumentIncarnation":1,"Events":[{"EventId":"x","EventType":"Preempt","Resources":["a"]}]}`)}
		})
		time.Sleep(2 * time.Second)
		if seen := stop(); len(seen) != 2 || seen[1].Document.Incarnation != "1" || len(seen[1].Document.Events) != 1 {
			t.Errorf("reported %+v, want the second document too", seen)
		}
	})
}

// Poll 3 is answered with an empty document long after the eviction was seen.
func TestLateAnswerDoesNotBringBackAnOlderState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, c := emulate(t, imds.Options{})
		s.OnRequest(func(r imds.Request) imds.Fault {
			if r.N == 3 {
				return imds.Fault{Hold: 4 * time.Second}
			}
			return imds.Fault{}
		})
		stop := watch(t, c)
		time.Sleep(2500 * time.Millisecond) // poll 3 is on its way
		if _, err := s.SimulateEviction("a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if seen := stop(); len(seen) != 2 || len(seen[1].Document.Events) != 1 {
			t.Errorf("reported %+v, want no event and then the eviction", seen)
		}
	})
}

// Poll 3 is slow; poll 4 is answered before the eviction, and every later one
// hangs. Only the late answer to poll 3 can show it.
func TestLateAnswerIsUsedWhenNewerPollsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, c := emulate(t, imds.Options{})
		s.OnRequest(func(r imds.Request) imds.Fault {
			switch {
			case r.N == 3:
				return imds.Fault{Delay: 4 * time.Second}
			case r.N > 4:
				return imds.Fault{Hang: true}
			default:
				return imds.Fault{}
			}
		})
		stop := watch(t, c)
		time.Sleep(3500 * time.Millisecond) // poll 4 was answered
		announced := time.Now()
		id, err := s.SimulateEviction("a")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if took := seenAfter(stop(), id, announced); took != 2500*time.Millisecond {
			t.Errorf("eviction seen after %s, want 2.5s, when poll 3 was answered", took)
		}
	})
}

// The call that switches the service on takes two minutes, and an eviction may
// be waiting.
func TestFirstCallMayTakeTwoMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, vm, c := emulate(t, imds.Options{FirstCallDelay: 2 * time.Minute})
		id := s.Schedule(imds.Event{Type: "Preempt", Resources: []string{"a"}, NotBefore: time.Now().Add(time.Hour)})
		begin := time.Now()
		stop := watch(t, c)
		time.Sleep(125 * time.Second)
		seen := stop()
		if took := seenAfter(seen, id, begin); took != 2*time.Minute {
			t.Errorf("eviction seen after %s, want 2m0s, when the first call was answered", took)
		}
		if !seen[0].Blind() || seen[0].Changed || !seen[0].BlindSince.Equal(begin) {
			t.Errorf("first report = %+v, want blind since the start", seen[0])
		}
		checkPolls(t, vm)
	})
}

// deaf is a transport that does not listen to its context.
type deaf struct {
	takes time.Duration
	ended atomic.Int32
}

func (d *deaf) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(d.takes)
	d.ended.Add(1)
	return nil, errors.New("no answer")
}

func TestRunWaitsForItsPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &deaf{takes: time.Minute}
		c, err := NewClient("http://127.0.0.1", WithTransport(transport))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		stop := watch(t, c)
		time.Sleep(2500 * time.Millisecond)
		stop()
		if n := transport.ended.Load(); n != 3 {
			t.Errorf("%d polls had ended when Run returned, want the 3 that were sent", n)
		}
		if took := time.Since(begin); took != 62*time.Second {
			t.Errorf("Run returned after %s, want 1m2s, when the last poll ended", took)
		}
	})
}

func TestPollsInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, vm, c := emulate(t, imds.Options{})
		s.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Hang: true} })
		stop := watch(t, c)
		time.Sleep(5500 * time.Millisecond)
		if n := vm.Stats().Requests; n != maxInFlight+1 {
			t.Errorf("%d polls hang, want %d, and a patient one", n, maxInFlight)
		}
		begin := time.Now()
		stop()
		if took := time.Since(begin); took != 0 {
			t.Errorf("Run took %s to return, want hanging polls to end at once", took)
		}
	})
}

// A panic in report must not be held up by polls that hang.
func TestPanicInReportEndsThePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, c := emulate(t, imds.Options{})
		s.OnRequest(func(r imds.Request) imds.Fault { return imds.Fault{Hang: r.N > 1} })
		begin := time.Now()
		defer func() {
			if p := recover(); p != "blind" {
				t.Errorf("recovered %v, want the panic of report", p)
			}
			if took := time.Since(begin); took != blindAfter {
				t.Errorf("the panic came through after %s, want %s", took, blindAfter)
			}
		}()
		NewWatcher(c).Run(t.Context(), func(o Observation) {
			if o.Blind() {
				panic("blind")
			}
		})
	})
}
