package delivery

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/breaker"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/job"
)

func TestDecide(t *testing.T) {
	stop := &job.Stop{Reason: job.Evicted}
	failure := errors.New("no")
	conflict := &checkpoint.ConflictError{Ruling: checkpoint.Fenced}
	tests := []struct {
		name     string
		end      runEnd
		failures int
		want     action
	}{
		{"a result", runEnd{result: []byte("r")}, 1, commit},
		{"no result and no error", runEnd{}, 1, commit},
		{"no error after a stop", runEnd{stop: stop}, 1, interrupted},
		{"no error after a stop, and proof", runEnd{stop: stop, proven: true}, 1, commit},
		{"a result after a stop", runEnd{result: []byte("r"), stop: stop, proven: true}, 1, commit},
		{"a result after a stop that is too large", runEnd{result: make([]byte, job.MaxResult+1), stop: stop, proven: true}, 1, poison},
		{"an error after a stop", runEnd{err: failure, stop: stop}, 5, interrupted},
		{"a permanent error after a stop", runEnd{err: job.Permanent(failure), stop: stop}, 1, interrupted},
		{"no return after a stop", runEnd{err: errAbandoned, stop: stop}, 1, interrupted},
		{"a failure", runEnd{err: failure}, 1, retryLater},
		{"the fourth failure", runEnd{err: failure}, 4, retryLater},
		{"the fifth failure", runEnd{err: failure}, 5, poison},
		{"a break", runEnd{err: job.Interrupted(failure)}, 5, interrupted},
		{"a break after a stop", runEnd{err: job.Interrupted(failure), stop: stop}, 1, interrupted},
		{"a permanent error", runEnd{err: job.Permanent(failure)}, 1, poison},
		{"a cancelled context of its own", runEnd{err: context.Canceled}, 1, retryLater},
		{"silent for too long, with a result", runEnd{result: []byte("r"), stop: &job.Stop{Reason: job.Silent}}, 1, retryLater},
		{"silent for too long, the fifth failure", runEnd{err: failure, stop: &job.Stop{Reason: job.Silent}}, 5, poison},
		{"silent for too long, and does not return", runEnd{err: errAbandoned, stop: &job.Stop{Reason: job.Silent}}, 1,
			retryLater},
		{"ran too long", runEnd{result: []byte("r"), stop: &job.Stop{Reason: job.Overrun}}, 1, poison},
		{"the largest result", runEnd{result: make([]byte, job.MaxResult)}, 1, commit},
		{"a result that is too large", runEnd{result: make([]byte, job.MaxResult+1)}, 1, poison},
		{"a state that is too large", runEnd{fault: failure, err: failure, stop: stop}, 1, poison},
		{"a result of a record that is another's", runEnd{conflict: conflict}, 1, drop},
		{"an error of a record that is another's", runEnd{conflict: conflict, err: failure}, 1, drop},
	}
	for _, tt := range tests {
		n := checkpoint.Attempts{Failures: tt.failures, FailuresTotal: tt.failures}
		if got := decide(&tt.end, n, job.Limits{}); got.action != tt.want {
			t.Errorf("%s: decide = %s, want %s", tt.name, got.action, tt.want)
		}
	}
}

// TestDecideBounds: the limits of a kind bound failures and breaks, and say how
// long the job waits.
func TestDecideBounds(t *testing.T) {
	failure := errors.New("no")
	n := func(failures, total, breaks int) checkpoint.Attempts {
		return checkpoint.Attempts{Failures: failures, FailuresTotal: total, Breaks: breaks}
	}
	own := job.Limits{MaxFailures: 2, Backoff: time.Minute}
	for _, row := range []struct {
		name   string
		err    error
		n      checkpoint.Attempts
		limits job.Limits
		want   action
		delay  time.Duration
		reason string // a part of it
	}{
		{"failures with progress", failure, n(1, 99, 0), job.Limits{}, retryLater, 10 * time.Second, "no"},
		{"too many failures with progress", failure, n(1, 100, 0), job.Limits{}, poison, 0,
			"100 failures in all, in spite of progress between them, the last: no"},
		{"a kind's own retries", failure, n(1, 1, 0), own, retryLater, time.Minute, "no"},
		{"a kind's own retries are over", failure, n(2, 2, 0), own, poison, 0, "2 failures in a row"},
		{"a kind without retries", failure, n(1, 1, 0), job.Limits{MaxFailures: 1}, poison, 0, "failed, and has no second attempt: no"},
		{"a kind whose retries were taken away", failure, n(3, 3, 0), job.Limits{MaxFailures: 1}, poison, 0, "3 failures in a row"},
		{"more retries than usual", failure, n(7, 7, 0), job.Limits{MaxFailures: 8}, retryLater, 10 * time.Minute,
			"no"},
		{"a break", job.Interrupted(failure), n(1, 1, 9), job.Limits{}, interrupted, 10 * time.Second, "no"},
		{"the tenth break waits for longer", job.Interrupted(failure), n(1, 1, 10), job.Limits{}, interrupted, 20 * time.Second, "no"},
		{"the last break but one", job.Interrupted(failure), n(1, 1, 999), job.Limits{}, interrupted, 10 * time.Minute, "no"},
		{"the last break", job.Interrupted(failure), n(1, 1, 1000), job.Limits{}, poison, 0,
			"1000 breaks in a row without progress of the fraction, the last: no"},
		{"something unavailable is no break", job.Unavailable(failure), n(9, 9, 5000), own, interrupted, time.Minute, "no"},
	} {
		got := decide(&runEnd{err: row.err}, row.n, row.limits)
		if got.action != row.want || got.delay != row.delay || !strings.Contains(got.reason, row.reason) {
			t.Errorf("%s: decide = %s after %s because %q, want %s after %s because %q", row.name, got.action, got.delay, got.reason, row.want,
				row.delay, row.reason)
		}
		if got.tookBreak != (got.action == interrupted && !job.IsUnavailable(row.err)) {
			t.Errorf("%s: counted as a break: %t", row.name, got.tookBreak)
		}
	}
	for n, want := range map[int]bool{1: false, 5: false, 9: false, 10: true, 15: false, 20: true, 30: false, 40: true, 640: true} {
		if got := circles(n); got != want {
			t.Errorf("circles(%d) = %t, want %t", n, got, want)
		}
	}
}

func TestFinished(t *testing.T) {
	whole, part := &job.Progress{Fraction: 1}, &job.Progress{Fraction: 0.99996, State: []byte("s")}
	for _, row := range []struct {
		name    string
		stopped bool
		result  []byte
		latest  *job.Progress
		want    bool
	}{
		{"before a stop", false, nil, nil, true},
		{"before a stop, a part reported", false, nil, part, true},
		{"after a stop, nothing", true, nil, nil, false},
		{"after a stop, a part reported", true, nil, part, false},
		{"after a stop, all reported", true, nil, whole, true},
		{"after a stop, a result", true, []byte("r"), part, true},
		{"after a stop, an empty result", true, []byte{}, nil, true},
	} {
		if got := provesDone(row.stopped, row.result, row.latest); got != row.want {
			t.Errorf("%s: finished = %t, want %t", row.name, got, row.want)
		}
	}
}

func TestUncleanExits(t *testing.T) {
	for _, row := range []struct {
		name    string
		steady  bool
		ran     time.Duration
		unsaved bool
		want    bool
	}{
		{"new worker, just begun", false, 0, false, false},
		{"new worker, a while", false, chargeAfter - 1, false, false},
		{"new worker, time enough for a state", false, chargeAfter, false, true},
		{"steady worker, just begun", true, 0, false, true},
		{"steady worker, a while", true, time.Second, false, true},
		{"steady worker, a state is being saved", true, time.Second, true, false},
		{"new worker, a state is being saved for long", false, time.Hour, true, false},
	} {
		if got := chargeable(row.steady, row.ran, row.unsaved); got != row.want {
			t.Errorf("%s: chargeable = %t, want %t", row.name, got, row.want)
		}
	}
	for _, row := range []struct {
		charged, early int
		want           bool
	}{{9, 49, false}, {10, 0, true}, {0, 50, true}, {3, 12, false}} {
		if got := exhausted(row.charged, row.early) != ""; got != row.want {
			t.Errorf("exhausted(%d, %d) = %t, want %t", row.charged, row.early, got, row.want)
		}
	}
}

func TestOutcomeOf(t *testing.T) {
	tests := map[checkpoint.Ruling]action{
		checkpoint.Finish: alreadyOver, checkpoint.PutBack: wait, checkpoint.Unreadable: wait,
		checkpoint.Mismatch: reject, checkpoint.Fenced: drop,
	}
	for ruling, want := range tests {
		got := outcomeOf(&checkpoint.ConflictError{Ruling: ruling})
		if got.action != want {
			t.Errorf("outcomeOf(%s) = %s, want %s", ruling, got.action, want)
		}
		if got.reason == "" && got.action != alreadyOver {
			t.Errorf("outcomeOf(%s) has no reason", ruling)
		}
	}
}

// TestClassOfAnEnd: the largest result is no failure, and neither is an error of a job that another worker has.
func TestClassOfAnEnd(t *testing.T) {
	for want, end := range map[string]runEnd{
		"":                     {result: make([]byte, job.MaxResult)},
		observe.FailedTooLarge: {result: make([]byte, job.MaxResult+1)},
		observe.FailedByError:  {err: errors.New("no")},
	} {
		if got := end.failureClass(); got != want {
			t.Errorf("class of a result of %d bytes with %v = %q, want %q", len(end.result), end.err, got, want)
		}
		if end.conflict = (&checkpoint.ConflictError{}); end.failureClass() != "" {
			t.Errorf("class %q in spite of a conflict, want none", end.failureClass())
		}
	}
}

func TestBackoff(t *testing.T) {
	usual := job.Limits{}.WithDefaults()
	want := []time.Duration{10, 20, 40, 80, 160, 320, 600, 600}
	for i, w := range want {
		if got := backoff(i+1, usual); got != w*time.Second {
			t.Errorf("backoff(%d) = %s, want %s", i+1, got, w*time.Second)
		}
	}
	if got := backoff(1000, usual); got != job.MaxBackoff {
		t.Errorf("backoff(1000) = %s, want %s", got, job.MaxBackoff)
	}
}

// TestVerdicts: only a run that was not stopped and made no progress speaks against
// the machine.
func TestVerdicts(t *testing.T) {
	failure := errors.New("no")
	evicted := &job.Stop{Reason: job.Evicted}
	for _, tt := range []struct {
		name                  string
		end                   runEnd
		progressed, elsewhere bool
		want                  breaker.Verdict
	}{
		{name: "a result", want: breaker.Works},
		{name: "a failure", end: runEnd{err: failure}, want: breaker.Fails},
		{name: "a break without progress", end: runEnd{err: job.Interrupted(failure)}, want: breaker.Fails},
		{name: "a break with progress", end: runEnd{err: job.Interrupted(failure)}, progressed: true, want: breaker.Works},
		{name: "a failure with progress", end: runEnd{err: failure}, progressed: true, want: breaker.Works},
		{name: "a failure of a job that failed elsewhere", end: runEnd{err: failure}, elsewhere: true, want: breaker.Inconclusive},
		{name: "a permanent error", end: runEnd{err: job.Permanent(failure)}, want: breaker.Inconclusive},
		{name: "a failure of the job's own command", end: runEnd{err: job.OwnFault(failure)}, want: breaker.Inconclusive},
		{name: "an eviction", end: runEnd{err: failure, stop: evicted}, want: breaker.Inconclusive},
		{name: "an eviction without return", end: runEnd{err: errAbandoned, stop: evicted}, want: breaker.Inconclusive},
		{name: "no error after an eviction", end: runEnd{stop: evicted}, want: breaker.Inconclusive},
		{name: "too long a silence", end: runEnd{err: failure, stop: &job.Stop{Reason: job.Silent}}, want: breaker.Fails},
		{name: "too long a run", end: runEnd{err: failure, stop: &job.Stop{Reason: job.Overrun}}, want: breaker.Inconclusive},
		{name: "another's record", end: runEnd{err: failure, conflict: &checkpoint.ConflictError{}}, want: breaker.Inconclusive},
		{name: "a state that is too large", end: runEnd{err: failure, fault: failure}, want: breaker.Inconclusive},
	} {
		if got := tt.end.breakerVerdict(tt.progressed, tt.elsewhere); got != tt.want {
			t.Errorf("%s: verdict = %d, want %d", tt.name, got, tt.want)
		}
	}
}
