package overview

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
)

// lacks is a worker with kinds that hides jobs of a kind that no worker has.
func lacks(kinds []string, kind string, jobs int) client.Worker {
	w := client.Worker{Kinds: kinds, Queues: []string{"jobs", "more"}}
	if jobs > 0 {
		w.Findings = &client.Findings{WithoutWorker: []client.KindCount{{Kind: kind, Jobs: jobs}}}
	}
	return w
}

// TestWithoutWorker: a kind that no live worker has is named with the most similar one. It is
// not named if a worker has it by now or may have it, as a worker of an older version.
func TestWithoutWorker(t *testing.T) {
	dead := lacks([]string{"logstats"}, "logstat", 2)
	dead.Age = time.Minute
	for name, row := range map[string]struct {
		workers []client.Worker
		want    string
	}{
		"one job": {[]client.Worker{lacks([]string{"logstats"}, "logstat", 1)},
			`1 job of kind "logstat": no live worker has a handler for it; did you mean "logstats"?`},
		"over several workers": {[]client.Worker{lacks([]string{"logstats"}, "logstat", 2), lacks(otherKinds, "logstat", 1)},
			`about 3 jobs of kind "logstat": no live worker has a handler for it; did you mean "logstats"?`},
		"no similar kind": {[]client.Worker{lacks([]string{"render"}, "logstat", 1)},
			`1 job of kind "logstat": no live worker has a handler for it (jobs that have not begun`},
		"more kinds":         {[]client.Worker{lacks([]string{"render"}, "*", 7)}, `about 7 jobs of more kinds`},
		"a worker has it":    {[]client.Worker{lacks([]string{"a"}, "logstat", 1), lacks([]string{"logstat"}, "", 0)}, ""},
		"an old worker may":  {[]client.Worker{lacks([]string{"a"}, "logstat", 1), {Queues: []string{"jobs", "more"}}}, ""},
		"a cut list may":     {[]client.Worker{lacks([]string{"a"}, "logstat", 1), lacks([]string{"b", "*"}, "", 0)}, ""},
		"the worker is dead": {[]client.Worker{lacks([]string{"a"}, "", 0), dead}, ""},
		"from another queue": {[]client.Worker{lacks([]string{"a"}, "logstat", 1), {Kinds: []string{"logstat"}, Queues: []string{"jobs"}}},
			`1 job of kind "logstat"`},
		"nothing found": {[]client.Worker{lacks([]string{"a"}, "", 0)}, ""},
	} {
		s := fleet(row.workers...)
		got := strings.Join(s.Problems(), "\n")
		if row.want == "" && strings.Contains(got, "no live worker") || !strings.Contains(got, row.want) {
			t.Errorf("%s: problems = %q, want %q", name, got, row.want)
		}
	}
}

// otherKinds are the kinds of a worker without any similar kind.
var otherKinds = []string{"other"}

// TestSilentJobs: jobs that may hang are counted, and one is named.
func TestSilentJobs(t *testing.T) {
	silent := func(n int, id string) client.Worker {
		return client.Worker{Findings: &client.Findings{SilentJobs: n, SilentJob: id}}
	}
	one := fleet(silent(1, "report-7"), client.Worker{})
	if got := strings.Join(one.Problems(), "\n"); !strings.Contains(got, "job report-7 has been silent") {
		t.Errorf("problems = %q, want the job", got)
	}
	more := fleet(silent(1, "report-7"), silent(2, "b"))
	if got := strings.Join(more.Problems(), "\n"); !strings.Contains(got, "3 running jobs have been silent") {
		t.Errorf("problems = %q, want three jobs", got)
	}
}

// TestSlowCalls: storage is said to be slow if most calls of a worker are, and the advice
// depends on the calls of other workers.
func TestSlowCalls(t *testing.T) {
	calls := func(n, slow int) client.Worker {
		return client.Worker{Findings: &client.Findings{Calls: n, SlowCalls: slow, CallTime: 2031 * time.Millisecond}}
	}
	for name, row := range map[string]struct {
		workers []client.Worker
		want    string
	}{
		"all": {[]client.Worker{calls(100, 90), calls(100, 51)},
			"storage is slow for 2 of 2 workers: the median of their calls is up to 2s"},
		"one of three":  {[]client.Worker{calls(100, 90), calls(100, 0), calls(100, 0)}, "other workers are not"},
		"a few calls":   {[]client.Worker{calls(100, 10)}, ""},
		"hardly any":    {[]client.Worker{calls(slowFrom-1, slowFrom-1)}, ""},
		"an old worker": {[]client.Worker{{}}, ""},
	} {
		s := fleet(row.workers...)
		got := strings.Join(s.Problems(), "\n")
		if row.want == "" && strings.Contains(got, "slow") || !strings.Contains(got, row.want) {
			t.Errorf("%s: problems = %q, want %q", name, got, row.want)
		}
	}
}

// TestSustainedGrowth: a queue that grew in both halves of ten minutes grows. A queue that got
// many jobs at once does not, and neither does a queue without readings.
func TestSustainedGrowth(t *testing.T) {
	for name, row := range map[string]struct {
		much, earlier, now int
		want               string
	}{
		"it grows":           {100, 200, 300, "queue jobs grows, +200 in 10m, and still does"},
		"jobs at once":       {0, 1000, 900, ""},
		"just now":           {100, 100, 300, ""},
		"hardly":             {1000, 1010, 1020, ""},
		"nobody has read it": {-1, -1, 300, ""},
	} {
		w := client.Worker{Age: 10 * time.Second, Kinds: []string{"a"}, Queues: []string{"jobs"}}
		if row.much >= 0 {
			w.Findings = &client.Findings{Earlier: []client.QueueReading{
				{Queue: "jobs", Messages: row.much, Age: 9*time.Minute + 50*time.Second}, {Queue: "jobs", Messages: row.earlier, Age: 5 * time.Minute},
				{Queue: "jobs", Messages: 5000, Age: time.Hour}, {Queue: "other", Messages: 1, Age: 5 * time.Minute},
			}}
		}
		s := fleet(w)
		s.Queues.Jobs = client.Queue{Name: "jobs", Exists: true, Messages: row.now}
		got := strings.Join(s.Problems(), "\n")
		if row.want == "" && strings.Contains(got, "grows") || !strings.Contains(got, row.want) {
			t.Errorf("%s: problems = %q, want %q", name, got, row.want)
		}
		drawn := strings.Join(Draw(s, 0, 0), "\n")
		if got := strings.Contains(drawn, "grows, +200 in 10m  ") || strings.Contains(drawn, "grows, +200 in 10m\n"); got != (row.want != "") {
			t.Errorf("%s: TO CLEAR says that it grows: %t\n%s", name, got, drawn)
		}
	}
}

// TestCapacity: workers that were evicted or died within the hour, and were not replaced, are
// counted if they are a large part. Workers that were stopped are not lost.
func TestCapacity(t *testing.T) {
	alive := client.Worker{StartedAt: noon.Add(-5 * time.Hour)}
	fresh := client.Worker{StartedAt: noon.Add(-time.Minute)}
	evicted := client.Worker{Age: 20 * time.Minute, State: "shutdown", LastEvent: &client.Event{Type: "Preempt"}}
	drained := evicted // that eviction was withdrawn
	drained.Asked = "drain"
	stopped := client.Worker{Age: 20 * time.Minute, State: "stopped"}
	died := client.Worker{Age: 20 * time.Minute, State: "process"}
	for name, row := range map[string]struct {
		workers []client.Worker
		want    string
	}{
		"half is gone": {[]client.Worker{alive, alive, evicted, died},
			"2 workers fewer than an hour ago, 2 are alive: 1 evicted, 1 silent, 0 started since"},
		"they were replaced": {[]client.Worker{alive, alive, evicted, evicted, fresh, fresh}, ""},
		"one of many":        {[]client.Worker{alive, alive, alive, alive, evicted}, ""},
		"scaled in":          {[]client.Worker{alive, stopped, stopped}, ""},
		"drained":            {[]client.Worker{alive, drained, drained}, ""},
		"a new fleet":        {[]client.Worker{fresh, fresh}, ""},
	} {
		s := Snapshot{At: noon}
		for i, w := range row.workers {
			w.Name = fmt.Sprint("vm_", i)
			if w.State == "" {
				w.State = "process"
			}
			s.Workers = append(s.Workers, w)
		}
		got := strings.Join(s.Problems(), "\n")
		if row.want == "" && strings.Contains(got, "than an hour ago") || !strings.Contains(got, row.want) {
			t.Errorf("%s: problems = %q, want %q", name, got, row.want)
		}
	}
}

// TestAfterAnOutage: right after an outage all heartbeats are old. That is no claim that no
// worker is alive.
func TestAfterAnOutage(t *testing.T) {
	for age, want := range map[time.Duration]string{
		50 * time.Second: "2 jobs wait, and no worker has written a heartbeat for 50s",
		20 * time.Minute: "2 jobs wait, and no worker is alive",
	} {
		s := fleet(client.Worker{Age: age}, client.Worker{Age: age + time.Second})
		s.Queues.Jobs = client.Queue{Name: "jobs", Exists: true, Messages: 2}
		if got := strings.Join(s.Problems(), "\n"); !strings.Contains(got, want) {
			t.Errorf("problems after %s = %q, want %q", age, got, want)
		}
	}
}

// TestWaitsFor says why a job waits.
func TestWaitsFor(t *testing.T) {
	worker := func(name string, age time.Duration, kinds ...string) client.Worker {
		return client.Worker{Name: name, Age: age, State: "process", Kinds: kinds, Queues: []string{"jobs"}}
	}
	open, failed := client.Job{Kind: "render", Status: client.StatusOpen}, client.Job{Kind: "render", Status: client.StatusOpen, Failures: 1}
	running := client.Job{Kind: "render", Status: client.StatusRunning, Owner: "a"}
	frozen, frozenAndLost, frozenAndFailed := open, running, failed
	for _, j := range []*client.Job{&frozen, &frozenAndLost, &frozenAndFailed} {
		j.StateNeeds = "large kernel=6.1 | x"
	}
	offers := func(w client.Worker, offers ...string) client.Worker {
		w.Offers = offers
		return w
	}
	small, large := offers(worker("b", 0, "render"), "small"), offers(worker("c", 0, "render"), "tiny", "large")
	const unmet = "a worker that meets the needs of its state: no live worker with its kind does"
	for name, row := range map[string]struct {
		job     client.Job
		workers []client.Worker
		want    string
	}{
		"no worker": {open, []client.Worker{worker("a", time.Hour, "render")}, "a worker: none is alive"},
		"no kind": {open, []client.Worker{worker("a", 0, "renders")},
			`a worker with kind "render": no live worker has it; did you mean "renders"?`},
		"an old worker":                 {open, []client.Worker{worker("a", 0)}, "a free worker, behind"},
		"a released job":                {open, []client.Worker{worker("a", 0, "render")}, "a free worker, behind"},
		"a failed job":                  {failed, []client.Worker{worker("a", 0, "render")}, "the end of the pause"},
		"its worker runs":               {running, []client.Worker{worker("a", 0, "other")}, ""},
		"its worker is gone":            {running, []client.Worker{worker("b", 0, "render")}, "another worker: its own is not alive"},
		"and no other has it":           {running, []client.Worker{worker("b", 0, "digest")}, `a worker with kind "render": no live`},
		"another machine":               {frozen, []client.Worker{small, worker("d", 0, "digest")}, unmet},
		"the machine, without the kind": {frozen, []client.Worker{small, offers(worker("d", 0, "digest"), "large")}, unmet},
		"the machine, which is dead":    {frozen, []client.Worker{small, offers(worker("d", time.Hour, "render"), "large")}, unmet},
		"its machine is gone":           {frozenAndLost, []client.Worker{small}, unmet},
		"another machine, failed":       {frozenAndFailed, []client.Worker{small}, unmet},
		"one of two machines":           {frozen, []client.Worker{small, large}, "a free worker that meets the needs of its state, behind"},
		"the machine":                   {frozen, []client.Worker{large}, "a free worker, behind"},
		"no needs":                      {open, []client.Worker{small}, "a free worker, behind"},
		"no needs, and another kind":    {open, []client.Worker{worker("a", 0, "render"), worker("d", 0, "digest")}, "a free worker, behind"},
		"not announced":                 {frozen, []client.Worker{worker("d", 0, "render")}, "a free worker, behind"},
		"it runs":                       {frozenAndLost, []client.Worker{small, worker("a", 0, "render")}, ""},
	} {
		if got := WaitsFor(row.job, row.workers); row.want == "" && got != "" || !strings.HasPrefix(got, row.want) {
			t.Errorf("%s: waits for %q, want %q", name, got, row.want)
		}
	}
}

// TestWithoutMachine: the jobs are added up over the live workers.
func TestWithoutMachine(t *testing.T) {
	w := func(jobs int) client.Worker {
		return client.Worker{Kinds: []string{"render"}, Queues: []string{"jobs"},
			Findings: &client.Findings{WithoutMachine: []client.KindCount{{Kind: "render", Jobs: jobs}}}}
	}
	dead := w(9)
	dead.Age = time.Minute
	s := fleet(w(2), w(1), dead)
	if got := strings.Join(s.Problems(), "\n"); !strings.Contains(got, `about 3 jobs of kind "render": no live worker has the machine`) {
		t.Errorf("problems = %q, want three jobs without a machine", got)
	}
}
