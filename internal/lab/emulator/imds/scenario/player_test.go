package scenario

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const eventsPath = "/metadata/scheduledevents"

// playing starts a scenario in a bubble and returns its player, its output, and a
// function that ends it.
func playing(t *testing.T, text string) (p *Player, told func() []string, stop func()) {
	t.Helper()
	s, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var lines []string
	p = New(s, func(line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	told = func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(lines)
	}
	return p, told, func() {
		cancel()
		<-done
	}
}

// ask sends one request for a VM and returns status and body.
func ask(t *testing.T, p *Player, vm, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://metadata.test"+path+"?api-version=2020-07-01", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Metadata", "true")
	resp, err := p.Server().VM(vm).RoundTripper().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func poll(t *testing.T, p *Player, vm string) (int, string) {
	t.Helper()
	return ask(t, p, vm, http.MethodGet, eventsPath, "")
}

// TestClock: times count from the start, or from the first request for events.
func TestClock(t *testing.T) {
	for clock, want := range map[string]bool{"start": true, "first_call": false} {
		synctest.Test(t, func(t *testing.T) {
			p, _, stop := playing(t, `{"about":"x","clock":"`+clock+`","vms":[{"name":"a"}],"steps":[{"at":"10s","simulate_eviction":{"vm":"a"}}]}`)
			defer stop()
			time.Sleep(11 * time.Second)
			ask(t, p, "a", http.MethodGet, "/metadata/instance", "") // is no request for events
			time.Sleep(11 * time.Second)
			if _, body := poll(t, p, "a"); strings.Contains(body, "Preempt") != want {
				t.Errorf("clock %s: 22s after the start a first request shows %s, want the eviction = %t", clock, body, want)
			}
			time.Sleep(10*time.Second + 1)
			if _, body := poll(t, p, "a"); !strings.Contains(body, "Preempt") {
				t.Errorf("clock %s: 10s after the first request there is %s, want the eviction", clock, body)
			}
		})
	}
}

// TestAcknowledgementMovesTheTimeline: it starts the event for all its VMs, and steps
// before its start are no longer possible.
func TestAcknowledgementMovesTheTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, told, stop := playing(t, `{"about":"x","clock":"start","vms":[{"name":"s_0","scale_set":"s"},{"name":"s_1","scale_set":"s"}],"steps":[
			{"at":"1s","announce":{"event":"e","id":"11111111-1111-1111-1111-111111111111","type":"Reboot","vms":["s_0","s_1"],
"completes_after":"20s"}},
			{"at":"10s","move":{"event":"e","notice":"1m"}},
			{"at":"11s","withdraw":"e"}]}`)
		time.Sleep(2 * time.Second)
		poll(t, p, "s_0")
		time.Sleep(1500 * time.Millisecond)
		ask(t, p, "s_0", http.MethodPost, eventsPath, `{"StartRequests":[{"EventId":"11111111-1111-1111-1111-111111111111"}]}`)
		if _, body := poll(t, p, "s_1"); !strings.Contains(body, `"Started"`) {
			t.Errorf("after s_0 acknowledged, s_1 is shown %s, want it Started", body)
		}
		time.Sleep(20*time.Second - 1)
		if _, body := poll(t, p, "s_1"); !strings.Contains(body, `"Started"`) {
			t.Errorf("just before 20s after the start s_1 is shown %s, want the event", body)
		}
		time.Sleep(2 * time.Nanosecond)
		if _, body := poll(t, p, "s_1"); !strings.Contains(body, `"Events":[]`) {
			t.Errorf("20s after the start s_1 is shown %s, want nothing", body)
		}
		stop()
		want := []string{
			"e is announced: Reboot of s_0, s_1, Scheduled, not before 00:15:01 GMT, 15m0s from now",
			"s_0 asks for its events, in version 2020-07-01",
			"s_0 is shown e, Scheduled, 1.0 s after it was announced",
			"s_0 sends StartRequests, in version 2020-07-01",
			"s_0 acknowledges e 1.5 s after it was shown it: it is Started for s_0, s_1",
			"s_1 asks for its events, in version 2020-07-01",
			"s_1 is shown e, Started, 2.5 s after it was announced",
			"e cannot be moved: it has started, as a client acknowledged it",
			"e cannot be withdrawn: it has started, as a client acknowledged it",
			"the scenario is over; what is announced is served until the end",
			"e is over, 20s after its start: it is not listed any more",
		}
		if diff := cmp.Diff(want, told()); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
		if got, want := p.Summary(), []string{
			"s_0 sent 2 requests, at most 1 in a second; 0 got 429. It sent 0 for tokens; 0 got 429.",
			"s_1 sent 3 requests, at most 2 in a second; 0 got 429. It sent 0 for tokens; 0 got 429.",
		}; !slices.Equal(got, want) {
			t.Errorf("summary = %q, want %q", got, want)
		}
	})
}

// TestRepeat: every round has the same VMs and new events, and the effects of the last
// round's faults are undone.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, told, stop := playing(t, `{"about":"x","clock":"start","length":"10s","then":"repeat","vms":[{"name":"a","identities":[{}]}],"steps":[
			{"at":"2s","simulate_eviction":{"event":"e","vm":"a"}},
			{"at":"3s","add_vm":{"name":"b"}},
			{"at":"4s","fault":{"status":500,"for":"1m"}},
			{"at":"4s","fault":{"limit":1,"for":"1m"}},
			{"at":"6s","remove_vm":"a"}]}`)
		at := func(d time.Duration) func() {
			begin := time.Now()
			return func() { time.Sleep(time.Until(begin.Add(d))) }
		}
		first, second := at(2500*time.Millisecond), at(11*time.Second)
		first()
		_, announced := poll(t, p, "a")
		second()
		status, body := poll(t, p, "a")
		if status != 200 || !strings.Contains(body, `"Events":[]`) {
			t.Errorf("at the beginning of the second round a gets %d %s, want no event and no fault", status, body)
		}
		if status, _ := poll(t, p, "a"); status != 200 {
			t.Errorf("a second request at the same time gets %d, want the limit of before", status)
		}
		if status, _ := poll(t, p, "b"); status != 404 {
			t.Errorf("b gets %d before it is added again, want 404", status)
		}
		time.Sleep(1500 * time.Millisecond)
		_, again := poll(t, p, "a")
		if !strings.Contains(again, "Preempt") || again == announced {
			t.Errorf("the second round shows %s, want an eviction of its own", again)
		}
		stop()
		if lines := told(); !slices.Contains(lines, "the scenario repeats: round 2") {
			t.Errorf("lines = %q, want one that the scenario repeats", lines)
		}
	})
}

// TestFaults: each is for the requests that it names, for its time.
func TestFaults(t *testing.T) {
	const scenario = `{"about":"x","clock":"start","service":{"requests_per_second":-1},"vms":[{"name":"a"},{"name":"b"}],` +
		`"steps":[{"at":"1s","fault":`
	for _, tt := range []struct {
		name, fault string
		want        map[string]int // status by VM and path
	}{
		{"all", `{"for":"2s","status":500}`, map[string]int{"a/events": 500, "b/events": 500, "a/instance": 500, "a/tokens": 500}},
		{"events", `{"for":"2s","status":500,"on":"events"}`, map[string]int{"a/events": 500, "b/events": 500, "a/instance": 404,
			"a/tokens": 404}},
		{"instance", `{"for":"2s","status":500,"on":"instance"}`, map[string]int{"a/events": 200, "b/events": 200, "a/instance": 500,
			"a/tokens": 404}},
		{"tokens", `{"for":"2s","status":500,"on":"tokens"}`, map[string]int{"a/events": 200, "b/events": 200, "a/instance": 404,
			"a/tokens": 500}},
		{"one VM", `{"for":"2s","status":500,"vms":["A"]}`, map[string]int{"a/events": 500, "b/events": 200, "a/instance": 500, "a/tokens": 500}},
		{"one version", `{"for":"2s","status":500,"versions":["2020-07-01"],"on":"events"}`, map[string]int{"a/events": 500, "b/events": 500}},
		{"another version", `{"for":"2s","status":500,"versions":["2019-01-01"]}`, map[string]int{"a/events": 200, "b/events": 200}},
		{"one in two", `{"for":"2s","status":500,"every":2,"on":"events"}`, map[string]int{"a/events": 200, "b/events": 200}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, _, stop := playing(t, scenario+tt.fault+`}]}`)
			defer stop()
			paths := map[string]string{"events": eventsPath, "instance": "/metadata/instance/compute", "tokens": "/metadata/identity/oauth2/token"}
			status := func(key string) int {
				vm, path, _ := strings.Cut(key, "/")
				got, _ := ask(t, p, vm, http.MethodGet, paths[path], "")
				return got
			}
			time.Sleep(2 * time.Second)
			for key, want := range tt.want {
				if got := status(key); got != want {
					t.Errorf("%s: %s gets %d, want %d", tt.name, key, got, want)
				}
			}
			if got := status("a/events"); tt.name == "one in two" && got != 500 {
				t.Errorf("the second request gets %d, want 500", got)
			}
			time.Sleep(time.Second + 1)
			for key := range tt.want {
				if got := status(key); got == 500 {
					t.Errorf("%s: %s gets 500 after the end of the fault", tt.name, key)
				}
			}
		})
	}
}

// TestImpact: requests of the suspended VMs wait, requests of others do not, and it may
// come twice.
func TestImpact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, stop := playing(t, `{"about":"x","clock":"start","vms":[{"name":"s_0","scale_set":"s"},{"name":"s_1","scale_set":"s"}],"steps":[
			{"at":"1s","announce":{"event":"e","type":"Reboot","status":"Started","vms":["s_0"]}},
			{"at":"2s","impact":{"event":"e","for":"10s"}},
			{"at":"20s","impact":{"event":"e","for":"3s"}}]}`)
		defer stop()
		begin := time.Now()
		for _, tt := range []struct {
			at         time.Duration
			vm         string
			answeredAt time.Duration
		}{
			{3 * time.Second, "s_1", 3 * time.Second},
			{4 * time.Second, "s_0", 12 * time.Second},
			{13 * time.Second, "s_0", 13 * time.Second},
			{21 * time.Second, "s_0", 23 * time.Second},
		} {
			time.Sleep(time.Until(begin.Add(tt.at)))
			_, body := poll(t, p, tt.vm)
			if got := time.Since(begin); got != tt.answeredAt || !strings.Contains(body, `"Started"`) {
				t.Errorf("request of %s at %s is answered at %s with %s, want at %s", tt.vm, tt.at, got, body, tt.answeredAt)
			}
		}
	})
}

// TestMistakesArePrinted: a client's mistake is printed once, and again after a minute.
func TestMistakesArePrinted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, told, stop := playing(t, `{"about":"x","vms":[{"name":"a"}]}`)
		for range 70 {
			time.Sleep(time.Second)
			ask(t, p, "a", http.MethodPost, eventsPath, `{"StartRequests":[{"EventId":"x"}]}`)
		}
		poll(t, p, "missing")
		stop()
		const mistake = "a /metadata/scheduledevents: 400, EventId is not that of a scheduled event"
		want := []string{"the first request for scheduled events has come: the scenario begins",
			"the scenario is over; what is announced is served until the end",
			mistake, mistake, "missing /metadata/scheduledevents: 404, the emulator has no VM of this name"}
		got := told()
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	})
}
