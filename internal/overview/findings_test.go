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

// TestIncidentsAreNamed: what a heartbeat shows is a problem with its cause, and names the worker. A
// lone odd call, and workers that differ on purpose, are none.
func TestIncidentsAreNamed(t *testing.T) {
	with := func(f client.Findings) client.Worker { return client.Worker{Findings: &f} }
	trouble := func(t client.Trouble) client.Worker { return with(client.Findings{Trouble: t}) }
	kinds := func(kinds ...string) client.Worker { return client.Worker{Kinds: kinds, VMSize: "D4"} }
	silent := client.Worker{Age: time.Minute}
	breaks := func(w client.Worker) client.Worker {
		w.Findings = &client.Findings{Trouble: client.Trouble{Broken: "b,a"}}
		return w
	}
	drained := func(lost time.Duration) client.Worker {
		return client.Worker{LastDrain: &client.Drain{EndedAt: noon.Add(-time.Minute), Jobs: 1, Released: 1, Lost: lost}}
	}
	for name, row := range map[string]struct {
		workers []client.Worker
		want    string // empty for no problem
	}{
		"all slow": {[]client.Worker{with(client.Findings{Calls: 100, SlowCalls: 90}), with(client.Findings{Calls: 100, SlowCalls: 51})},
			"storage is slow for 2 of 2 workers (vmss_0-0123abcd-0, vmss_1-0123abcd-0): up to 90% of"},
		"one is slow": {[]client.Worker{with(client.Findings{Calls: 10, SlowCalls: 5}), with(client.Findings{Calls: 10})},
			"storage is slow for 1 of 2 workers (vmss_0-0123abcd-0)"},
		"two slow calls": {[]client.Worker{with(client.Findings{Calls: 4, SlowCalls: 2})}, ""},
		"few of many":    {[]client.Worker{with(client.Findings{Calls: 1000, SlowCalls: 90, FailedCalls: 90, DeniedCalls: 90})}, ""},
		"a role is missing": {[]client.Worker{with(client.Findings{Calls: 10, FailedCalls: 3, DeniedCalls: 3}), {}},
			"storage denies (401, 403) up to 30% of the calls of 1 of 2 workers (vmss_0-0123abcd-0): a role"},
		"half is refused": {[]client.Worker{with(client.Findings{Calls: 10, FailedCalls: 5, ThrottledCalls: 5})},
			"storage refuses for now (429, 503) up to 50% of the calls of 1 of 1 worker"},
		"a container is gone": {[]client.Worker{with(client.Findings{Calls: 10, FailedCalls: 5, MissingCalls: 5})},
			"storage has no queue or container for (404) up to 50% of"},
		"an outage": {[]client.Worker{with(client.Findings{Calls: 10, FailedCalls: 5})},
			"storage does not answer, or answers with an error to up to 50%"},
		"blind": {[]client.Worker{trouble(client.Trouble{Blind: 7 * time.Second}), {}},
			"1 of 2 workers get no answer of the metadata service, so that an eviction comes without notice"},
		"a wrong clock": {[]client.Worker{trouble(client.Trouble{Clock: -10 * time.Minute})},
			"1 of 1 workers have a clock that differs by more than 30s"},
		"a full disk": {[]client.Worker{trouble(client.Trouble{ScratchFree: 4, ScratchSize: 100})},
			"1 of 1 workers have less than 5 % free in --scratch"},
		"a broken GPU": {[]client.Worker{trouble(client.Trouble{GPUs: "1 (Tesla T4): nvidia-smi says: GPU is lost"}), {}},
			"broken GPUs, which no job gets: vmss_0: GPU 1 (Tesla T4): nvidia-smi says: GPU is lost"},
		"all is well":   {[]client.Worker{trouble(client.Trouble{Clock: time.Second, ScratchFree: 5, ScratchSize: 100, Crashes: 1})}, ""},
		"exposed":       {[]client.Worker{trouble(client.Trouble{Exposed: "127.0.0.1:3080"})}, "1 of 1 workers start no program"},
		"two of a name": {[]client.Worker{trouble(client.Trouble{Rival: "b"})}, "1 of 1 workers share their name with another living worker"},
		"a crash loop": {[]client.Worker{trouble(client.Trouble{Crashes: 2})},
			"1 of 1 workers crashed several times in a row soon after their start: vmss_0-"},
		"a silent VM": {[]client.Worker{silent, {}}, "1 worker is silent (vmss_0-0123abcd-0): dead, crashing at the start, or without network"},
		"a renamed kind": {[]client.Worker{kinds("a", "rendr"), kinds("a", "render"), kinds("a", "render")},
			`worker vmss_0-0123abcd-0 alone has kind "rendr", and lacks kind "render"`},
		"another size":     {[]client.Worker{{Kinds: []string{"gpu"}, VMSize: "N"}, kinds("render"), kinds("render")}, ""},
		"an update begins": {[]client.Worker{kinds("a", "b"), kinds("a"), kinds("a")}, ""},
		"two halves":       {[]client.Worker{kinds("a"), kinds("b")}, ""},
		"a circuit breaker": {[]client.Worker{breaks(runs("a", 14, 5)), runs("a", 9, 0)},
			"VM vmss_0 fails jobs of kind a: 5 of 19 runs in 10 min"},
		"failures on one VM": {[]client.Worker{runs("a", 10, 7), runs("a", 5, 0)},
			"kind a fails: 7 of 22 runs in 10 min, 7 of them on VM vmss_0 (spotctl"},
		"on both": {[]client.Worker{breaks(runs("a", 14, 2)), breaks(runs("a", 9, 2))}, ""},
		"lost work": {[]client.Worker{drained(64 * time.Second), drained(30 * time.Second), drained(time.Second)},
			"2 workers lost 1m34s of work at a hand-over in the last hour (vmss_0-0123abcd-0, vmss_1-0123abcd-0), up to 1m4s each: jobs did not " +
				"save"},
		"little work": {[]client.Worker{drained(29 * time.Second)}, ""},
	} {
		s := fleet(row.workers...)
		got := strings.Join(s.Problems(), "\n")
		if row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: problems = %q, want %q", name, got, row.want)
		}
	}
}

// TestRestartedWorker: a job whose record is older than the process of its owner is not run by it:
// no time is left, and it counts as without a worker. A worker that has run for longer still may.
func TestRestartedWorker(t *testing.T) {
	for ran, want := range map[time.Duration]bool{5 * time.Minute: true, time.Minute: false} {
		s := fleet(client.Worker{StartedAt: noon, Ran: ran, Age: 10 * time.Second, Kinds: []string{"a"}, Queues: []string{"jobs"}})
		j := client.Job{ID: "j", Kind: "a", Status: client.StatusRunning, Owner: s.Workers[0].Name, ReadAt: noon, Fraction: 0.5,
			RunTime:   time.Hour,
			UpdatedAt: noon.Add(-2 * time.Minute)}
		s.Jobs.Running = []client.Job{j}
		if got := s.withoutWorker() == 0; got != want {
			t.Errorf("run for %s: the job has its worker: %t, want %t", ran, got, want)
		}
		if got := WaitsFor(j, s.Workers) == ""; got != want {
			t.Errorf("run for %s: the job waits for nothing: %t, want %t", ran, got, want)
		}
		if got := strings.Contains(strings.Join(Draw(s, 0, 0), "\n"), "gone: "+j.Owner); got == want {
			t.Errorf("run for %s: the table says that the worker is gone: %t", ran, got)
		}
	}
}

// TestSustainedGrowth: a queue that grew in both parts of the last minute grows. A queue that got
// many jobs at once does not, and neither does a queue without readings.
func TestSustainedGrowth(t *testing.T) {
	for name, row := range map[string]struct {
		much, earlier, now int
		want               string
	}{
		"it grows":           {100, 200, 300, "queue jobs grows, +200 in 45s, and still does"},
		"jobs at once":       {0, 1000, 900, ""},
		"just now":           {100, 100, 300, ""},
		"hardly":             {1000, 1010, 1020, ""},
		"nobody has read it": {-1, -1, 300, ""},
	} {
		w := client.Worker{Age: 10 * time.Second, Kinds: []string{"a"}, Queues: []string{"jobs"}}
		if row.much >= 0 {
			w.Findings = &client.Findings{Earlier: []client.QueueReading{
				{Queue: "jobs", Messages: row.much, Age: 35 * time.Second}, {Queue: "jobs", Messages: row.earlier, Age: 10 * time.Second},
				{Queue: "jobs", Messages: 5000, Age: time.Hour}, {Queue: "other", Messages: 1, Age: 10 * time.Second},
			}}
		}
		s := fleet(w)
		s.Queues.Jobs = client.Queue{Name: "jobs", Exists: true, Messages: row.now}
		got := strings.Join(s.Problems(), "\n")
		if row.want == "" && strings.Contains(got, "grows") || !strings.Contains(got, row.want) {
			t.Errorf("%s: problems = %q, want %q", name, got, row.want)
		}
		drawn := strings.Join(Draw(s, 0, 0), "\n")
		if got := strings.Contains(drawn, "grows, +200 in 45s  ") || strings.Contains(drawn, "grows, +200 in 45s\n"); got != (row.want != "") {
			t.Errorf("%s: TO CLEAR says that it grows: %t\n%s", name, got, drawn)
		}
	}
}

// TestCapacity: workers that were evicted or died within the hour, and were not replaced, are
// counted if they are a large part. Workers that were stopped are not lost.
func TestCapacity(t *testing.T) {
	alive := client.Worker{Ran: 5 * time.Hour}
	fresh, recent := client.Worker{Ran: time.Minute}, client.Worker{Ran: 50 * time.Minute}
	evicted := client.Worker{Ran: 5 * time.Hour, Age: 20 * time.Minute, State: "shutdown", LastEvent: &client.Event{Type: "Preempt"}}
	drained := evicted // that eviction was withdrawn
	drained.Asked = "drain"
	stopped := client.Worker{Age: 20 * time.Minute, State: "stopped"}
	died := client.Worker{Ran: 30 * time.Minute, Age: 20 * time.Minute, State: "process"}
	for name, row := range map[string]struct {
		workers []client.Worker
		want    string
	}{
		"half is gone": {[]client.Worker{alive, alive, evicted, died},
			"2 workers fewer than at most in the last hour, 2 are alive: 1 evicted, 1 silent;"},
		"half of a young fleet": {[]client.Worker{recent, recent, died, died}, "2 workers fewer than at most in the last hour, 2 are alive"},
		"they were replaced":    {[]client.Worker{alive, alive, evicted, evicted, fresh, fresh}, ""},
		"one of many":           {[]client.Worker{alive, alive, alive, alive, evicted}, ""},
		"scaled in":             {[]client.Worker{alive, stopped, stopped}, ""},
		"drained":               {[]client.Worker{alive, drained, drained}, ""},
		"a new fleet":           {[]client.Worker{fresh, fresh}, ""},
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
		if row.want == "" && strings.Contains(got, "workers fewer") || !strings.Contains(got, row.want) {
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

// TestTooLarge: jobs that take more GPUs than any live worker has are added up; others wait for one.
func TestTooLarge(t *testing.T) {
	w := func(gpus int, counts ...client.GPUCount) client.Worker {
		return client.Worker{Kinds: []string{"train"}, Queues: []string{"jobs"}, GPUs: gpus, Findings: &client.Findings{TooLarge: counts}}
	}
	dead := w(8)
	dead.Age = time.Minute
	four, two := client.GPUCount{Kind: "train", GPUs: 4, Jobs: 2}, client.GPUCount{Kind: "train", GPUs: 2, Jobs: 5}
	for name, row := range map[string]struct {
		workers []client.Worker
		want    string
	}{
		"two workers": {[]client.Worker{w(1, four, two), w(2, four), dead},
			`about 4 jobs of kind "train": each takes 4 GPUs, and no live worker has more than 2;`},
		"no GPU at all": {[]client.Worker{w(0, client.GPUCount{Kind: "train", GPUs: 1, Jobs: 1})},
			`about 1 job of kind "train": each takes 1 GPU, and no live worker has any;`},
		"one has enough": {[]client.Worker{w(1, four, two), w(4)}, ""},
	} {
		got := strings.Join(TooLarge(row.workers), "\n")
		if row.want == "" && got != "" || !strings.Contains(got, row.want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
		s := fleet(row.workers...)
		if !strings.Contains(strings.Join(s.Problems(), "\n"), row.want) {
			t.Errorf("%s: problems are %q, want %q among them", name, s.Problems(), row.want)
		}
		waits := WaitsFor(client.Job{Kind: "train", Status: client.StatusOpen}, row.workers)
		if strings.Contains(waits, "more GPUs") != (row.want != "") {
			t.Errorf("%s: a job waits for %q", name, waits)
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
