package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

// expect compares the metrics of those names with their text form.
func expect(t *testing.T, m *Metrics, want string, names ...string) {
	t.Helper()
	for i := range names {
		names[i] = "spotworker_" + names[i]
	}
	if err := testutil.GatherAndCompare(m.Gatherer(), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

func TestJobsAreCounted(t *testing.T) {
	m := New(Config{Version: "v1", Slots: 4})
	m.Observe(observe.Delivered{})
	m.Observe(observe.Delivered{})
	m.Observe(observe.Ended{Outcome: "committed"})
	m.Observe(observe.Started{How: "first"})
	m.Observe(observe.Entered{State: lifecycle.Process, Ending: false})
	m.Observe(observe.Saved{Result: "saved", Bytes: 1000, Took: 20 * time.Millisecond})
	m.Observe(observe.Saved{Result: "failed", Bytes: 5000, Took: time.Second})
	m.Observe(observe.LeftOut{})
	m.Observe(observe.Moved{Reason: "deadline"})
	m.Observe(observe.Circles{Cause: "breaks"})
	expect(t, m, `
# HELP spotworker_checkpoint_saved_bytes_total Size of the states recorded. `+
		`Large states are sent in part, so fewer bytes may have been sent.
# TYPE spotworker_checkpoint_saved_bytes_total counter
spotworker_checkpoint_saved_bytes_total 1000
# HELP spotworker_checkpoint_saves_total Attempts to record a job's state. Fenced means that another worker has the job by now.
# TYPE spotworker_checkpoint_saves_total counter
spotworker_checkpoint_saves_total{result="failed"} 1
spotworker_checkpoint_saves_total{result="fenced"} 0
spotworker_checkpoint_saves_total{result="saved"} 1
# HELP spotworker_deliveries_total Messages claimed; a job counts each time.
# TYPE spotworker_deliveries_total counter
spotworker_deliveries_total 2
# HELP spotworker_delivery_outcomes_total Messages released, by the outcome for their job.
# TYPE spotworker_delivery_outcomes_total counter
spotworker_delivery_outcomes_total{outcome="committed"} 1
spotworker_delivery_outcomes_total{outcome="dropped"} 0
spotworker_delivery_outcomes_total{outcome="failed"} 0
spotworker_delivery_outcomes_total{outcome="finished"} 0
spotworker_delivery_outcomes_total{outcome="left"} 0
spotworker_delivery_outcomes_total{outcome="moved"} 0
spotworker_delivery_outcomes_total{outcome="poisoned"} 0
spotworker_delivery_outcomes_total{outcome="put_back"} 0
spotworker_delivery_outcomes_total{outcome="released"} 0
# HELP spotworker_job_slots Jobs that this worker runs at once.
# TYPE spotworker_job_slots gauge
spotworker_job_slots 4
# HELP spotworker_jobs_in_hand Messages that the worker has claimed and not released yet.
# TYPE spotworker_jobs_in_hand gauge
spotworker_jobs_in_hand 1
# HELP spotworker_jobs_circling_total Jobs that do not end: counted at the 10th, 20th, 40th ... of their failures in all, `+
		`or of their breaks in a row without progress of the fraction.
# TYPE spotworker_jobs_circling_total counter
spotworker_jobs_circling_total{cause="breaks"} 1
spotworker_jobs_circling_total{cause="failures"} 0
# HELP spotworker_state 1 for the lifecycle state that the worker is in, 0 for the others.
# TYPE spotworker_state gauge
spotworker_state{state="process"} 1
spotworker_state{state="recover"} 0
spotworker_state{state="resume"} 0
spotworker_state{state="shutdown"} 0
spotworker_state{state="start"} 0
spotworker_state{state="stopped"} 0
# HELP spotworker_states_left_out_total Jobs released without their last state: the work since the checkpoint before is repeated.
# TYPE spotworker_states_left_out_total counter
spotworker_states_left_out_total 1
`, "checkpoint_saved_bytes_total", "checkpoint_saves_total", "deliveries_total", "delivery_outcomes_total",
		"job_slots", "jobs_circling_total", "jobs_in_hand", "state", "states_left_out_total")
	if got := testutil.CollectAndCount(m.saveTime); got != 1 {
		t.Errorf("series of save times = %d, want 1", got)
	}
}

// TestBlindness: the time without an answer counts while it lasts and once it is
// over, and never twice.
func TestBlindness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{})
		blind := func() float64 {
			families, err := m.Gatherer().Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "spotworker_metadata_blind_seconds_total" {
					return f.GetMetric()[0].GetCounter().GetValue()
				}
			}
			t.Fatal("no metric of blindness")
			return 0
		}
		expect(t, m, "", "metadata_last_answer_timestamp_seconds")
		m.Observe(observe.Polled{At: time.Unix(1000, 5e8), Result: preempt.PollAnswered})
		m.Observe(observe.Polled{At: time.Unix(2000, 0), Result: preempt.PollTimeout})
		expect(t, m, `
# HELP spotworker_metadata_last_answer_timestamp_seconds When the metadata service last answered, `+
			`by this machine's clock. Absent before the first answer.
# TYPE spotworker_metadata_last_answer_timestamp_seconds gauge
spotworker_metadata_last_answer_timestamp_seconds 1000.5
`, "metadata_last_answer_timestamp_seconds")

		m.Observe(observe.Blind{Since: time.Time{}})
		if got := blind(); got != 0 {
			t.Errorf("blind for %v s, want 0", got)
		}
		since := time.Now()
		time.Sleep(5 * time.Second)
		m.Observe(observe.Blind{Since: since})
		time.Sleep(5 * time.Second)
		if got := blind(); got != 10 {
			t.Errorf("blind for %v s so far, want 10", got)
		}
		m.Observe(observe.Blind{Since: since}) // still
		time.Sleep(5 * time.Second)
		m.Observe(observe.Blind{Since: time.Time{}})
		m.Observe(observe.Blind{Since: time.Time{}})
		time.Sleep(time.Minute)
		if got := blind(); got != 15 {
			t.Errorf("blind for %v s in all, want 15", got)
		}
		m.Observe(observe.Blind{Since: time.Now()})
		time.Sleep(time.Second)
		if got := blind(); got != 16 {
			t.Errorf("blind for %v s the second time, want 16", got)
		}
	})
}

func TestHealthIsShown(t *testing.T) {
	healthy := true
	m := New(Config{Healthy: func() bool { return healthy }})
	for _, healthy = range []bool{true, false, true} {
		want := map[bool]string{true: "1", false: "0"}[healthy]
		expect(t, m, `
# HELP spotworker_healthy 1 while the loops of the worker turn, 0 when one of them hangs, as /healthz reports.
# TYPE spotworker_healthy gauge
spotworker_healthy `+want+"\n", "healthy")
	}
}

// TestConventions: names, units and help texts are as Prometheus asks.
func TestConventions(t *testing.T) {
	m := New(Config{Version: "v1"})
	m.Observe(observe.Announced{Type: "Preempt", Action: "drain"})
	m.Observe(observe.Polled{At: time.Now(), Result: preempt.PollAnswered})
	m.Called("blob", "PutBlob", "2xx", time.Millisecond, true, "Sun, 22 Nov 2026 17:00:00 GMT")
	problems, err := testutil.GatherAndLint(m.Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, namespace) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestHandler(t *testing.T) {
	m := New(Config{Version: "v1"})
	m.Observe(observe.Drained{Reason: "evicted", Took: 300 * time.Millisecond})
	m.Observe(observe.Acknowledged{Result: "accepted"})
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`spotworker_build_info{goversion="go`, `version="v1"} 1`, `spotworker_drain_duration_seconds_bucket{reason="evicted",le="0.5"} 1`,
		`spotworker_acknowledgements_total{result="accepted"} 1`, "go_goroutines ", "process_start_time_seconds ",
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("metrics have no %q", want)
		}
	}
}

// TestCountingCostsNoMemory holds the counts of every short job to no allocation.
func TestCountingCostsNoMemory(t *testing.T) {
	m := New(Config{})
	m.Called("blob", "PutBlob", "2xx", time.Millisecond, true, "Sun, 22 Nov 2026 17:00:00 GMT")
	for what, f := range map[string]func(){
		"a delivery": func() {
			m.Observe(observe.Delivered{})
			m.Observe(observe.Started{How: "first"})
			m.Observe(observe.Returned{})
			m.Observe(observe.Ended{Outcome: "committed"})
		},
		"a commit": func() {
			m.Observe(observe.Waited{After: "put", For: time.Second})
			m.Observe(observe.Spent{Kind: "digest", Effort: "committed", Took: time.Second})
			m.Observe(observe.Committed{Kind: "digest", SincePut: time.Minute, Ran: time.Second, Interruptions: 0, Exits: 0})
		},
		"a save":         func() { m.Observe(observe.Saved{Result: "saved", Bytes: 10, Took: time.Millisecond}) },
		"a storage call": func() { m.Called("blob", "PutBlob", "2xx", time.Millisecond, true, "Sun, 22 Nov 2026 17:00:00 GMT") },
	} {
		if got := testing.AllocsPerRun(100, f); got != 0 {
			t.Errorf("%s allocates %v times, want never", what, got)
		}
	}
}

// TestEffort: times, waits, failures and commits of jobs.
func TestEffort(t *testing.T) {
	m := New(Config{})
	m.Observe(observe.Recovered{Kind: "digest"})
	m.Observe(observe.Waited{After: "release", For: 3 * time.Second})
	m.Observe(observe.Spent{Kind: "digest", Effort: "committed", Took: 2 * time.Second})
	m.Observe(observe.Spent{Kind: "digest", Effort: "committed", Took: 3 * time.Second})
	m.Observe(observe.Failed{Kind: "digest", Class: "error"})
	expect(t, m, "", "last_commit_timestamp_seconds")
	m.Observe(observe.Committed{Kind: "digest", SincePut: time.Minute, Ran: 5 * time.Second, Interruptions: 2, Exits: 1})
	expect(t, m, `
# HELP spotworker_handler_seconds_total Time of handlers, by its outcome. Goodput is committed and handed_over.
# TYPE spotworker_handler_seconds_total counter
spotworker_handler_seconds_total{kind="digest",outcome="committed"} 5
spotworker_handler_seconds_total{kind="digest",outcome="failed"} 0
spotworker_handler_seconds_total{kind="digest",outcome="handed_over"} 0
spotworker_handler_seconds_total{kind="digest",outcome="redone"} 0
# HELP spotworker_job_failures_total Failures of jobs, by their cause. A dead-lettered job counts too.
# TYPE spotworker_job_failures_total counter
spotworker_job_failures_total{class="error",kind="digest"} 1
spotworker_job_failures_total{class="exits",kind="digest"} 0
spotworker_job_failures_total{class="message",kind="digest"} 0
spotworker_job_failures_total{class="overrun",kind="digest"} 0
spotworker_job_failures_total{class="panic",kind="digest"} 0
spotworker_job_failures_total{class="permanent",kind="digest"} 0
spotworker_job_failures_total{class="silent",kind="digest"} 0
spotworker_job_failures_total{class="too_large",kind="digest"} 0
`, "handler_seconds_total", "job_failures_total")
	if got := testutil.CollectAndCount(m.Gatherer().(prometheus.Collector), "spotworker_last_commit_timestamp_seconds"); got != 1 {
		t.Errorf("times of the last commit = %d, want 1", got)
	}
}

// TestSlotSeconds: the times of all slots add up, in all their uses.
func TestSlotSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{Slots: 4})
		time.Sleep(10 * time.Second) // starting
		m.Observe(observe.Entered{State: lifecycle.Process, Ending: false})
		time.Sleep(10 * time.Second)
		m.Observe(observe.Delivered{})
		m.Observe(observe.Delivered{})
		time.Sleep(time.Second) // reading records
		m.Observe(observe.Started{How: "first"})
		m.Observe(observe.Started{How: "first"})
		time.Sleep(20 * time.Second)
		m.Observe(observe.Returned{})
		time.Sleep(time.Second) // committing
		m.Observe(observe.Ended{Outcome: "committed"})
		time.Sleep(10 * time.Second)
		expect(t, m, `
# HELP spotworker_slot_seconds_total `+slotsHelp+`
# TYPE spotworker_slot_seconds_total counter
spotworker_slot_seconds_total{state="around"} 3
spotworker_slot_seconds_total{state="closed"} 40
spotworker_slot_seconds_total{state="handler"} 51
spotworker_slot_seconds_total{state="idle"} 114
`, "slot_seconds_total")
	})
}

// TestStorageOutage: the time in which no call is answered counts while it lasts and
// afterwards; a refusal is an answer.
func TestStorageOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{})
		call := func(status string, took time.Duration) {
			m.Called("blob", "PutBlob", status, took, status != "unanswered", "")
		}
		unreachable := func(want string) {
			t.Helper()
			expect(t, m, `
# HELP spotworker_storage_unreachable_seconds_total Time in which every call to storage failed (5xx or no answer). `+
				`Jobs continue, nothing is saved.
# TYPE spotworker_storage_unreachable_seconds_total counter
spotworker_storage_unreachable_seconds_total `+want+"\n", "storage_unreachable_seconds_total")
		}
		call("2xx", time.Millisecond)
		time.Sleep(time.Minute)
		unreachable("0")
		call("unanswered", 2*time.Second)
		time.Sleep(10 * time.Second)
		call("unanswered", time.Second)
		unreachable("12")
		call("denied", time.Millisecond)
		time.Sleep(time.Minute)
		unreachable("12")
	})
}

// TestClockOffset: a machine whose clock is wrong shows by how much.
func TestClockOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{})
		expect(t, m, "", "clock_offset_seconds")
		call := func(offset time.Duration) {
			m.Called("blob", "PutBlob", "2xx", 0, true, time.Now().Add(-offset).UTC().Format(http.TimeFormat))
		}
		for _, offset := range []time.Duration{0, time.Hour, -time.Minute} {
			time.Sleep(clockEvery)
			call(offset)
			call(24 * time.Hour) // too soon after the other
			if got := time.Duration(m.clock.offset.Load()); (got - offset).Abs() > time.Second {
				t.Errorf("offset = %s, want %s", got, offset)
			}
		}
	})
}

// TestQueueReadingsEnd: a reading is not shown for longer than others may take over.
func TestQueueReadingsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{})
		m.Observe(observe.QueueRead{Queue: "jobs", Messages: 12, Oldest: time.Minute})
		time.Sleep(readingFor)
		expect(t, m, `
# HELP spotworker_queue_oldest_message_age_seconds For how long the message at the front of a queue has been on it; 0 if none is visible.
# TYPE spotworker_queue_oldest_message_age_seconds gauge
spotworker_queue_oldest_message_age_seconds{queue="jobs"} 60
`, "queue_oldest_message_age_seconds")
		time.Sleep(time.Second)
		expect(t, m, "", "queue_messages", "queue_oldest_message_age_seconds")
	})
}
