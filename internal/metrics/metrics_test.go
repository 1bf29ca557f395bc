package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

var testWords = Words{
	States: []string{"start", "process", "stopped"}, Outcomes: []string{"committed", "left"}, Starts: []string{"first"},
	Saves: []string{"saved", "failed"}, Circles: []string{"failures", "breaks"}, Acknowledgements: []string{"accepted"}, DrainReasons: []string{"evicted"}, PollResults: []string{"answered", "timeout"},
}

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
	m := New(Config{Version: "v1", Slots: 4, Words: testWords})
	m.Delivered()
	m.Delivered()
	m.Ended("committed")
	m.Started("first")
	m.Entered("process", false)
	m.Saved("saved", 1000, 20*time.Millisecond)
	m.Saved("failed", 5000, time.Second)
	m.LeftOut()
	m.Circles("breaks")
	expect(t, m, `
# HELP spotworker_checkpoint_saved_bytes_total Size of the states recorded. Of a large state only what changed is sent, so this may be more than what went over the network.
# TYPE spotworker_checkpoint_saved_bytes_total counter
spotworker_checkpoint_saved_bytes_total 1000
# HELP spotworker_checkpoint_saves_total Attempts to record a job's state. Fenced means that another worker has the job by now.
# TYPE spotworker_checkpoint_saves_total counter
spotworker_checkpoint_saves_total{result="failed"} 1
spotworker_checkpoint_saves_total{result="saved"} 1
# HELP spotworker_deliveries_total Messages claimed. Those of one job count each time.
# TYPE spotworker_deliveries_total counter
spotworker_deliveries_total 2
# HELP spotworker_delivery_outcomes_total Messages released, by the outcome for their job.
# TYPE spotworker_delivery_outcomes_total counter
spotworker_delivery_outcomes_total{outcome="committed"} 1
spotworker_delivery_outcomes_total{outcome="left"} 0
# HELP spotworker_job_slots Jobs that this worker runs at once.
# TYPE spotworker_job_slots gauge
spotworker_job_slots 4
# HELP spotworker_jobs_in_hand Messages that the worker has claimed and not released yet.
# TYPE spotworker_jobs_in_hand gauge
spotworker_jobs_in_hand 1
# HELP spotworker_jobs_circling_total Jobs that do not end: counted at the 10th, 20th, 40th ... of their failures in all, or of their breaks in a row without progress of the fraction.
# TYPE spotworker_jobs_circling_total counter
spotworker_jobs_circling_total{cause="breaks"} 1
spotworker_jobs_circling_total{cause="failures"} 0
# HELP spotworker_state 1 for the lifecycle state that the worker is in, 0 for the others.
# TYPE spotworker_state gauge
spotworker_state{state="process"} 1
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

func TestStateAtFirst(t *testing.T) {
	m := New(Config{Words: testWords})
	if got := testutil.ToFloat64(m.state.WithLabelValues("start")); got != 1 {
		t.Errorf("state start of a new worker = %v, want 1", got)
	}
}

// TestBlindness: the time without an answer counts while it lasts and once it is
// over, and never twice.
func TestBlindness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{Words: testWords})
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
		m.Polled(time.Unix(1000, 5e8), "answered")
		m.Polled(time.Unix(2000, 0), "timeout")
		expect(t, m, `
# HELP spotworker_metadata_last_answer_timestamp_seconds When the metadata service last answered with a document, by this machine's clock. Absent before the first answer.
# TYPE spotworker_metadata_last_answer_timestamp_seconds gauge
spotworker_metadata_last_answer_timestamp_seconds 1000.5
`, "metadata_last_answer_timestamp_seconds")

		m.Blind(time.Time{})
		if got := blind(); got != 0 {
			t.Errorf("blind for %v s, want 0", got)
		}
		since := time.Now()
		time.Sleep(5 * time.Second)
		m.Blind(since)
		time.Sleep(5 * time.Second)
		if got := blind(); got != 10 {
			t.Errorf("blind for %v s so far, want 10", got)
		}
		m.Blind(since) // still
		time.Sleep(5 * time.Second)
		m.Blind(time.Time{})
		m.Blind(time.Time{})
		time.Sleep(time.Minute)
		if got := blind(); got != 15 {
			t.Errorf("blind for %v s in all, want 15", got)
		}
		m.Blind(time.Now())
		time.Sleep(time.Second)
		if got := blind(); got != 16 {
			t.Errorf("blind for %v s the second time, want 16", got)
		}
	})
}

func TestHealthIsShown(t *testing.T) {
	healthy := true
	m := New(Config{Words: testWords, Healthy: func() bool { return healthy }})
	for _, healthy = range []bool{true, false, true} {
		want := map[bool]string{true: "1", false: "0"}[healthy]
		expect(t, m, `
# HELP spotworker_healthy 1 while the loops of the worker turn, 0 when one of them hangs: what /healthz says.
# TYPE spotworker_healthy gauge
spotworker_healthy `+want+"\n", "healthy")
	}
}

// TestConventions: names, units and help texts are as Prometheus asks.
func TestConventions(t *testing.T) {
	m := New(Config{Version: "v1", Words: testWords})
	m.Announced("Preempt", "drain")
	m.Polled(time.Now(), "answered")
	m.Called("blob", "PutBlob", "2xx", time.Millisecond)
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
	m := New(Config{Version: "v1", Words: testWords})
	m.Drained("evicted", 300*time.Millisecond)
	m.Acknowledged("accepted")
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

// TestCountingCostsNoMemory holds what every short job does to no allocation.
func TestCountingCostsNoMemory(t *testing.T) {
	m := New(Config{Words: testWords})
	m.Called("blob", "PutBlob", "2xx", time.Millisecond)
	for what, f := range map[string]func(){
		"a delivery":     func() { m.Delivered(); m.Started("first"); m.Ended("committed") },
		"a save":         func() { m.Saved("saved", 10, time.Millisecond) },
		"a storage call": func() { m.Called("blob", "PutBlob", "2xx", time.Millisecond) },
		"a poll":         func() { m.Polled(time.Now(), "answered") },
	} {
		if got := testing.AllocsPerRun(100, f); got != 0 {
			t.Errorf("%s allocates %v times, want never", what, got)
		}
	}
}
