package delivery

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/delivery/breaker"
	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/telemetry/health"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/job"
)

// breakerEvents are the events of circuit breakers.
type breakerEvents struct{ events []string }

func (b *breakerEvents) observe(e observe.Event) {
	switch e := e.(type) {
	case observe.Broke:
		b.events = append(b.events, "broke "+e.Kind)
	case observe.Recovered:
		b.events = append(b.events, "recovered "+e.Kind)
	}
}

// observedBy returns a runner with as much as circuit breakers need.
func observedBy(b *breakerEvents) *Runner {
	return &Runner{Parts: Parts{
		Settings: &Settings{Loops: &health.Loops{}}, Observe: b.observe, Fleet: &Fleet{turn: make(chan struct{}, 1)},
	}}
}

// TestBreakerIsReported: when a circuit breaker opens or closes, metrics, the note in the health of the
// worker and one line in its log report it, and a job that is refused says why.
func TestBreakerIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		observed := &breakerEvents{}
		r := observedBy(observed)
		run := func(i int, verdict breaker.Verdict) *outcome {
			r.Fleet.sampled = Sample{at: time.Now()}
			c := &claimed{env: r, lease: &queue.Lease{}, log: slog.New(slog.NewTextHandler(&log, nil)), cleanup: t.Context()}
			c.envelope = queue.Envelope{ID: fmt.Sprint("job-", i), Kind: "render"}
			pass, out := enterBreaker(t.Context(), c)
			if out == nil {
				time.Sleep(time.Second)
				pass.leave(t.Context(), verdict, verdict == breaker.Fails)
			}
			return out
		}
		notes := func() string { return strings.Join(r.Loops.Check(time.Now()).Notes, "; ") }
		for i := range 5 {
			if out := run(i, breaker.Fails); out != nil || i < 4 && len(observed.events) > 0 {
				t.Fatalf("run %d = %+v, events %v, want five failures before the breaker opens", i, out, observed.events)
			}
		}
		if note := notes(); !strings.Contains(note, `kind "render" rests until `) || !strings.Contains(note, "fail in a row") {
			t.Errorf("note = %q, want that the kind rests, and why", note)
		}
		if out := run(5, breaker.Works); out == nil || out.action != wait || !strings.Contains(out.reason, `kind "render" is open`) {
			t.Errorf("a job while the breaker is open = %+v, want it left to others", out)
		}
		time.Sleep(time.Minute)
		if out := run(6, breaker.Inconclusive); out != nil || len(observed.events) != 1 || notes() == "" {
			t.Errorf("a probe that shows nothing = %+v, events %v, note %q; want it to run, and the breaker as it was", out,
				observed.events, notes())
		}
		if out := run(7, breaker.Works); out != nil || notes() != "" {
			t.Errorf("the probe = %+v, note %q, want it to run and to close the breaker", out, notes())
		}
		if diff := cmp.Diff([]string{"broke render", "recovered render"}, observed.events); diff != "" {
			t.Errorf("events (-want +got)\n%s", diff)
		}
		for line, want := range map[string]int{"circuit breaker open:": 1, "level=ERROR": 1, "circuit breaker closed": 1} {
			if got := strings.Count(log.String(), line); got != want {
				t.Errorf("lines with %q = %d, want %d in\n%s", line, got, want, &log)
			}
		}
	})
}

// TestRunsOfOthers: the runs of a kind on other machines add up, and none are known where heartbeats are not.
func TestRunsOfOthers(t *testing.T) {
	heartbeat := func(kind string, done, failed int) presence.Listed {
		return presence.Listed{Presence: presence.Presence{Activity: activity.Report{
			Kinds: []activity.Kind{{Name: "other", Done: 100, Failed: 100}, {Name: kind, Done: done, Failed: failed}},
		}}}
	}
	o := others{known: true, heartbeats: []presence.Listed{
		heartbeat("render", 3, 1), heartbeat("render", 20, 10), heartbeat("digest", 50, 50),
	}}
	if got, want := o.runs("render"), (activity.Runs{Done: 23, Failed: 11}); got != want || o.none() {
		t.Errorf("runs elsewhere = %+v, none %t, want %+v", got, o.none(), want)
	}
	if !(others{known: true}).none() || (others{}).none() {
		t.Errorf("no other machine: %t if heartbeats are known, %t if not; want true, false", others{known: true}.none(), others{}.none())
	}
}

// TestKindsOfAFleet: the kinds of a fleet are those of workers that may take jobs, and the worker's own.
func TestKindsOfAFleet(t *testing.T) {
	worker := func(age time.Duration, state string, kinds ...string) presence.Listed {
		return presence.Listed{Presence: presence.Presence{State: state, Kinds: kinds}, Age: age}
	}
	s := Sample{Workers: []presence.Listed{
		worker(0, "process", "b", "c"), worker(hasKindFor, "process", "d"), worker(hasKindFor+1, "process", "late"), worker(0, "stopped", "gone"),
	}}
	if got, want := s.kinds(job.Kinds{"e": nil, "b": nil}), []string{"b", "c", "d", "e"}; !cmp.Equal(got, want) {
		t.Errorf("kinds = %v, want %v", got, want)
	}
}

// TestBreakerClosesDuringARun: a probe that runs for longer than the jobs that failed closes the circuit breaker.
func TestBreakerClosesDuringARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		observed := &breakerEvents{}
		r := observedBy(observed)
		enter := func(i int) (breakerPass, *outcome) {
			r.Fleet.sampled = Sample{at: time.Now(), err: errors.New("unlisted")} // others may run the kind
			c := &claimed{env: r, lease: &queue.Lease{}, log: slog.New(slog.NewTextHandler(&log, nil)), cleanup: t.Context()}
			c.envelope = queue.Envelope{ID: fmt.Sprint("job-", i), Kind: "render"}
			return enterBreaker(t.Context(), c)
		}
		for i := range 5 {
			pass, _ := enter(i)
			time.Sleep(time.Second)
			pass.leave(t.Context(), breaker.Fails, true)
		}
		time.Sleep(time.Minute)
		if _, out := enter(5); out != nil {
			t.Fatalf("the probe = %+v, want it to run", out)
		}
		if _, out := enter(6); out == nil || out.action != wait {
			t.Errorf("a job beside the probe = %+v, want it left to others", out)
		}
		time.Sleep(time.Hour)
		if _, out := enter(7); out != nil || !strings.Contains(log.String(), "a job runs for longer than those that failed") {
			t.Errorf("a job beside a long probe = %+v, want it to run, in\n%s", out, &log)
		}
		if diff := cmp.Diff([]string{"broke render", "recovered render"}, observed.events); diff != "" {
			t.Errorf("events (-want +got)\n%s", diff)
		}
	})
}

// TestBreakerOfTheOnlyMachine: where no other machine runs the kind, any number of jobs run once the circuit breaker's rest is over.
func TestBreakerOfTheOnlyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observedBy(&breakerEvents{})
		enter := func(i int) (breakerPass, *outcome) {
			r.Fleet.sampled = Sample{at: time.Now()}
			c := &claimed{env: r, lease: &queue.Lease{}, log: slog.New(slog.DiscardHandler), cleanup: t.Context()}
			c.envelope = queue.Envelope{ID: fmt.Sprint("job-", i), Kind: "render"}
			return enterBreaker(t.Context(), c)
		}
		for i := range 5 {
			pass, _ := enter(i)
			pass.leave(t.Context(), breaker.Fails, true)
		}
		if _, out := enter(5); out == nil {
			t.Error("a job runs while the breaker rests")
		}
		time.Sleep(time.Minute)
		for i := range 3 {
			if _, out := enter(6 + i); out != nil {
				t.Errorf("job %d after the rest = %+v, want it to run beside the others", i, out)
			}
		}
	})
}
