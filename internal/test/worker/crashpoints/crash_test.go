package crashpoints

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// callStep is the step from one crash point to the next. make nightly-proof runs all crash points.
var callStep = proof.Times(59, 1)

// callFault is a fault that is injected at one of a worker's storage calls.
type callFault struct {
	name     string
	fault    rig.RequestFault // of that call
	duration time.Duration    // all calls within this time get the same fault
}

var callFaults = []callFault{
	{name: "killed before it", fault: rig.RequestFault{Crash: rig.BeforeEffect}},
	{name: "killed after its effect", fault: rig.RequestFault{Crash: rig.AfterEffect}},
	{name: "killed after its reply", fault: rig.RequestFault{Crash: rig.AfterReply}},
	{name: "lost", fault: rig.RequestFault{Lost: true}},
	{name: "reply lost", fault: rig.RequestFault{ReplyLost: true}},
	{name: "swallowed", fault: rig.RequestFault{Lost: true, Hangs: true}},
	{name: "reply swallowed", fault: rig.RequestFault{ReplyLost: true, Hangs: true}},
	{name: "throttled", fault: rig.RequestFault{Refused: storage.ServerBusy(0)}},
	{name: "arrives 40s late", fault: rig.RequestFault{ArrivesAfter: 40 * time.Second}},
	// The SDK retries a call for some 3 s: only longer faults leave it to the worker
	// to find out the outcome of a call.
	{name: "lost for 4s", fault: rig.RequestFault{Lost: true}, duration: 4 * time.Second},
	{name: "replies lost for 4s", fault: rig.RequestFault{ReplyLost: true}, duration: 4 * time.Second},
	{name: "lost for 15s", fault: rig.RequestFault{Lost: true}, duration: 15 * time.Second},
}

// TestEveryCall injects each fault at each storage call of a worker, in each
// scenario. In every case other workers bring every job to its expected outcome,
// exactly once, no message is left, and no write breaks a rule of the recorder.
func TestEveryCall(t *testing.T) {
	table := &coverage{points: map[string]map[string]int{}}
	seed := proof.Seed(t)
	t.Cleanup(func() { table.log(t) })
	for i, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			calls := s.referenceRun(t)
			if len(calls) < s.minCalls {
				t.Errorf("storage calls of a worker without faults = %d, want at least %d:\n%s", len(calls), s.minCalls, strings.Join(calls, "\n"))
			}
			sample := rand.New(rand.NewPCG(seed, uint64(i)))
			for _, cf := range faultsOf(sample) {
				first := 1 + sample.IntN(min(callStep, len(calls)))
				t.Run(cf.name, func(t *testing.T) { table.add(s.name, cf.name, s.everyCall(t, cf, first, len(calls))) })
			}
		})
	}
}

// faultsOf returns all faults or, for a quick run, a sample of them in the same order: another
// one for each scenario, so that together the scenarios have all.
func faultsOf(sample *rand.Rand) []callFault {
	chosen := sample.Perm(len(callFaults))[:proof.Times(5, len(callFaults))]
	slices.Sort(chosen)
	faults := make([]callFault, len(chosen))
	for i, n := range chosen {
		faults[i] = callFaults[n]
	}
	return faults
}

// everyCall injects the fault at one call after another, from the first on, each in a run of
// its own, and returns the number of runs. Some runs have fewer calls than the reference
// run: a poll that is put off can make one less.
func (s scenario) everyCall(t *testing.T, cf callFault, first, reference int) (points int) {
	t.Helper()
	longest := map[string]time.Duration{} // drain, by the call with the fault
	for at := first; !t.Failed(); at += callStep {
		reached := false
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			r := s.run(t, b, cf, at)
			reached, longest[r.faultedCall] = r.first.Link.Sent() >= at, max(longest[r.faultedCall], r.drained)
		})
		if !reached {
			break
		}
		points++
	}
	if cf.fault.Hangs {
		t.Logf("longest drain with one call %s, by the call: %v", cf.name, longest)
	}
	if points*callStep < reference*2/3-(callStep-1) {
		t.Errorf("calls with the fault = %d, want about the %d of a run without faults", points, reference)
	}
	return points
}

// referenceRun returns the calls of a worker without faults, and fails unless the
// worker's log shows that the scenario took place.
func (s scenario) referenceRun(t *testing.T) (calls []string) {
	t.Helper()
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		r := s.begin(t, b)
		b.Recorder.Also = func(result storage.Result) {
			if b.Recorder.Sender == subject {
				calls = append(calls, result.Operation)
			}
		}
		r.first = b.Start(subject, r.kinds, s.first)
		s.act(t, b, r)
		r.first.Stop()
		if n := len(r.first.Log.Find(s.wantLog)); n == 0 {
			t.Errorf("log of a worker without faults has no %q", s.wantLog)
		}
		s.end(t, b, r)
	})
	return calls
}

// subject is the VM of the worker into whose calls faults are injected.
const subject = "vm_0"

// run runs the scenario with the fault at call number at.
func (s scenario) run(t *testing.T, b *rig.Bed, cf callFault, at int) *scenarioRun {
	r := s.begin(t, b)
	r.first = b.Start(subject, r.kinds, s.first)
	injectFault(r.first, cf, at, &r.faultedCall)
	s.act(t, b, r)
	r.first.Stop()
	r.drained = r.checkDrain(t, cf)
	s.end(t, b, r)
	limit := cf.maxRepeated(r.work.Each)
	if s.twice {
		limit += stepsPerCheckpoint(r.work.Each)
		if cf.fault.Hangs { // the write that detects the duplicate waits until its try times out
			limit += int(30 * time.Second / r.work.Each)
		}
	}
	if n := r.work.Repeated("long"); n > limit {
		t.Errorf("steps repeated = %d, want at most %d", n, limit)
	}
	if t.Failed() {
		t.Logf("%s, %s at call %d:", s.name, cf.name, at)
		for id := range s.want {
			t.Logf("the history of job %s:\n%s", id, b.Recorder.HistoryOf(id))
		}
	}
	return r
}

// checkDrain returns how long the drain of the first worker took. If one call was
// swallowed, the drain must end within hangingCallDrain and save every state.
func (r *scenarioRun) checkDrain(t *testing.T, cf callFault) (took time.Duration) {
	t.Helper()
	for _, line := range r.first.Log.Find("drained") {
		took = time.Duration(line["since_notice"].(float64))
		if cf.fault.Hangs && (took > rig.HangingCallDrain || line["states_left_out"] != 0.0) {
			t.Errorf("drained after %s with %v states left out, want at most %s and none", took, line["states_left_out"], rig.HangingCallDrain)
		}
	}
	return took
}

// maxRepeated is how many steps may be done twice: after a kill or a long fault the steps
// of one checkpoint interval and one save, otherwise only the running step.
func (cf callFault) maxRepeated(step time.Duration) int {
	if cf.fault.Crash == 0 && cf.duration == 0 {
		return 1
	}
	return stepsPerCheckpoint(step) + int(cf.duration/step) + 1
}

// stepsPerCheckpoint is the number of steps between two saves.
func stepsPerCheckpoint(step time.Duration) int {
	return int(checkpoint.Shortest / step)
}

// begin prepares storage for the worker with the faults.
func (s scenario) begin(t *testing.T, b *rig.Bed) *scenarioRun {
	b.Chunk = smallChunk
	b.AddRecorder()
	r := &scenarioRun{}
	r.kinds = r.handlers(b.Recorder)
	s.prepare(t, b, r)
	return r
}

// end lets another worker finish, and checks the outcome of every job.
func (s scenario) end(t *testing.T, b *rig.Bed, r *scenarioRun) {
	b.Start("vm_1", r.kinds, s.second)
	b.WaitFor("no message left", 15*time.Minute, func() bool { return b.MessagesLeft() == 0 })
	b.Recorder.LateRequests.Wait()
	for id, want := range s.want {
		b.CheckOutcome(t, id, want)
	}
	b.Recorder.Check(t)
}

// injectFault injects the fault at the worker's call number at, and stores in
// faultedCall which call that is.
func injectFault(p *rig.Process, cf callFault, at int, faultedCall *string) {
	p.Link.Mu.Lock()
	defer p.Link.Mu.Unlock()
	var end time.Time
	p.Link.FaultFor = func(n int, r *http.Request) rig.RequestFault {
		if n == at {
			end, *faultedCall = time.Now().Add(cf.duration), callOf(r)
		}
		if n < at || n > at && !time.Now().Before(end) {
			return rig.RequestFault{}
		}
		f := cf.fault
		if f.Crash != 0 {
			f.OnSend = p.Term // so that its handlers stop too
		}
		return f
	}
}

// coverage counts the crash points that were tested.
type coverage struct {
	mu     sync.Mutex
	points map[string]map[string]int // by scenario and fault
}

func (c *coverage) add(scenario, fault string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.points[scenario] == nil {
		c.points[scenario] = map[string]int{}
	}
	c.points[scenario][fault] = n
}

func (c *coverage) log(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	all := 0
	for _, s := range scenarios {
		sum := 0
		fmt.Fprintf(&b, "\n%-18s", s.name)
		for _, cf := range callFaults {
			n := c.points[s.name][cf.name]
			fmt.Fprintf(&b, " %5d", n)
			sum += n
		}
		fmt.Fprintf(&b, " %6d", sum)
		all += sum
	}
	var names []string
	for _, cf := range callFaults {
		names = append(names, cf.name)
	}
	t.Logf("%d crash points: scenarios by faults (%s), and their sum%s", all, strings.Join(names, ", "), b.String())
}

// scenarioRun is one run of a scenario.
type scenarioRun struct {
	work  *rig.Steps
	kinds job.Kinds
	first *rig.Process

	inputs string // of the job, as its handler demands them

	faultedCall string        // the call with the fault
	drained     time.Duration // from the notice until the first worker had released all jobs
}

// callOf describes a request by its method, its queue or container, and its operation.
func callOf(r *http.Request) string {
	place := strings.Split(r.URL.Path, "/")[2] // after the account
	return strings.TrimSpace(r.Method + " " + place + " " + r.URL.Query().Get("comp"))
}
