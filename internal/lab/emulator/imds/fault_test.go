package imds

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRateLimitIsPerVMAndSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		vm, other := s.AddVM(VM{Name: "a"}), s.AddVM(VM{Name: "b"})
		statuses := func() (all []int) {
			for range 6 {
				all = append(all, mustSend(t, vm, "GET", computePath, "").status)
			}
			return all
		}
		first := statuses()
		for i, status := range first {
			want := 200
			if i == 5 {
				want = 429
			}
			if status != want {
				t.Errorf("request %d of one second: status = %d, want %d", i+1, status, want)
			}
		}
		if r := mustSend(t, other, "GET", computePath, ""); r.status != 200 {
			t.Errorf("status for another VM = %d, want 200", r.status)
		}
		time.Sleep(time.Second - time.Nanosecond)
		if r := mustSend(t, vm, "GET", computePath, ""); r.status != 429 {
			t.Errorf("status within the second = %d, want 429", r.status)
		}
		time.Sleep(time.Nanosecond)
		if r := mustSend(t, vm, "GET", computePath, ""); r.status != 200 {
			t.Errorf("status a second later = %d, want 200", r.status)
		}

		stats := vm.Stats()
		if stats.Requests != 8 || stats.Throttled != 2 || stats.BusiestSecond != 7 {
			t.Errorf("requests, throttled, busiest second = %d, %d, %d, want 8, 2, 7",
				stats.Requests, stats.Throttled, stats.BusiestSecond)
		}
		last := stats.Recent[len(stats.Recent)-1]
		if last.N != 8 || last.VM != "a" || last.Path != "/metadata/instance/compute" || last.Version != "2021-02-01" {
			t.Errorf("latest request = %+v", last)
		}
		if gap := last.At.Sub(stats.Recent[0].At); gap != time.Second {
			t.Errorf("time from first to latest request = %s, want 1s", gap)
		}
	})
}

func TestFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		vm := s.AddVM(VM{Name: "a"})
		id := s.Schedule(Event{Type: "Preempt", Resources: []string{"a"}})
		if at, ok := vm.FirstServed(id); ok {
			t.Errorf("served at %s before any request", at)
		}
		s.OnRequest(func(Request) Fault { return Fault{Status: 500} })
		mustSend(t, vm, "GET", eventsPath, "")
		if at, ok := vm.FirstServed(id); ok {
			t.Errorf("served at %s by an error", at)
		}
		time.Sleep(time.Second)
		s.OnRequest(func(Request) Fault { return Fault{Hold: 300 * time.Millisecond} })
		begin := time.Now()
		document(t, vm)
		time.Sleep(time.Second)
		document(t, vm)
		if at, _ := vm.FirstServed(strings.ToLower(id)); at.Sub(begin) != 300*time.Millisecond {
			t.Errorf("first served after %s, want when the first answer arrived, after 300ms", at.Sub(begin))
		}
	})
}

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name   string
			fault  Fault
			status int
			body   string // looked at if not empty
			err    error
			took   time.Duration
		}{
			{"none", Fault{}, 200, "", nil, 0},
			{"delay", Fault{Delay: 3 * time.Second}, 200, "", nil, 3 * time.Second},
			{"hold", Fault{Hold: 2 * time.Second}, 200, "", nil, 2 * time.Second},
			{"hang", Fault{Hang: true}, 0, "", context.DeadlineExceeded, 10 * time.Second},
			{"cut", Fault{Cut: true}, 0, "", io.ErrUnexpectedEOF, 0},
			{"slow cut", Fault{Delay: time.Second, Cut: true}, 0, "", io.ErrUnexpectedEOF, time.Second},
			{"status", Fault{Status: 503}, 503, `{"error":"injected fault"}`, nil, 0},
			{"garbage", Fault{Body: []byte("<html>")}, 200, "<html>", nil, 0},
			{"garbage with a status", Fault{Body: []byte("{}"), Status: 500}, 500, "{}", nil, 0},
			{"empty", Fault{Body: []byte{}}, 200, "", nil, 0},
			{"too slow", Fault{Delay: time.Minute}, 0, "", context.DeadlineExceeded, 10 * time.Second},
			{"too late", Fault{Hold: time.Minute}, 0, "", context.DeadlineExceeded, 10 * time.Second},
		} {
			s := New(Options{})
			vm := s.AddVM(VM{Name: "a"})
			s.OnRequest(func(r Request) Fault {
				if r.N != 1 {
					return Fault{}
				}
				return tt.fault
			})
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			r, err := send(ctx, vm, "GET", eventsPath, "")
			cancel()
			if took := time.Since(begin); took != tt.took {
				t.Errorf("%s: took %s, want %s", tt.name, took, tt.took)
			}
			if !errors.Is(err, tt.err) || r.status != tt.status {
				t.Errorf("%s: status %d and error %v, want %d and %v", tt.name, r.status, err, tt.status, tt.err)
			}
			if tt.body != "" && r.body != tt.body {
				t.Errorf("%s: body = %s, want %s", tt.name, r.body, tt.body)
			}
			document(t, vm) // the second request is not affected
		}
	})
}

// Delay and Hold differ in the content of the late answer.
func TestDelayedAnswerIsFreshAndHeldAnswerIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			fault  Fault
			events int
			date   string
		}{
			{Fault{Delay: 5 * time.Second}, 1, "05"},
			{Fault{Hold: 5 * time.Second}, 0, "00"},
		} {
			s := New(Options{})
			vm := s.AddVM(VM{Name: "a"})
			s.OnRequest(func(Request) Fault { return tt.fault })
			minute := time.Now().Truncate(time.Minute).Add(time.Minute)
			time.Sleep(time.Until(minute))
			time.AfterFunc(time.Second, func() { s.Schedule(Event{Type: "Preempt", Resources: []string{"a"}}) })

			r := mustSend(t, vm, "GET", eventsPath, "")
			if n := strings.Count(r.body, "EventId"); n != tt.events {
				t.Errorf("%+v: %d events, want %d", tt.fault, n, tt.events)
			}
			if date := r.header.Get("Date"); !strings.HasSuffix(date, ":"+tt.date+" GMT") {
				t.Errorf("%+v: Date = %s, want second %s", tt.fault, date, tt.date)
			}
		}
	})
}
