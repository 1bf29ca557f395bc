package worker

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// callFault is what happens to a worker at one of its storage calls.
type callFault struct {
	name     string
	fault    requestFault  // of that call
	duration time.Duration // the same becomes of all calls of this time
}

var callFaults = []callFault{
	{name: "death before it", fault: requestFault{crash: beforeEffect}},
	{name: "death after its effect", fault: requestFault{crash: afterEffect}},
	{name: "death after its reply", fault: requestFault{crash: afterReply}},
	{name: "lost", fault: requestFault{lost: true}},
	{name: "reply lost", fault: requestFault{replyLost: true}},
	{name: "swallowed", fault: requestFault{lost: true, hangs: true}},
	{name: "reply swallowed", fault: requestFault{replyLost: true, hangs: true}},
	{name: "throttled", fault: requestFault{refused: storage.ServerBusy(0)}},
	{name: "arrives 40s late", fault: requestFault{arrivesAfter: 40 * time.Second}},
	// The SDK repeats a call for some 3 s: only longer troubles leave it to the
	// worker to find out what came of a call.
	{name: "lost for 4s", fault: requestFault{lost: true}, duration: 4 * time.Second},
	{name: "replies lost for 4s", fault: requestFault{replyLost: true}, duration: 4 * time.Second},
	{name: "lost for 15s", fault: requestFault{lost: true}, duration: 15 * time.Second},
}

// TestEveryCall lets each fault happen at each storage call of a worker, in each
// scenario. Whatever happens, other workers end every job as it should end, once,
// no message is left, and no write breaks a rule of the ledger.
func TestEveryCall(t *testing.T) {
	table := &coverage{points: map[string]map[string]int{}}
	t.Cleanup(func() { table.log(t) })
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			calls := s.referenceRun(t)
			if len(calls) < s.minCalls {
				t.Errorf("storage calls of a worker that nothing happens to = %d, want at least %d:\n%s", len(calls), s.minCalls, strings.Join(calls, "\n"))
			}
			for _, m := range callFaults {
				t.Run(m.name, func(t *testing.T) { table.add(s.name, m.name, s.everyCall(t, m, len(calls))) })
			}
		})
	}
}

// everyCall returns at how many calls the fault happened. Some lives have fewer
// calls than an untouched one: a put off poll can make one less.
func (s scenario) everyCall(t *testing.T, m callFault, untouched int) (points int) {
	t.Helper()
	longest := map[string]time.Duration{} // drain, by the call to which it happened
	for at := 1; !t.Failed(); at += callStep {
		reached := false
		inBubble(t, func(t *testing.T, b *testbed) {
			r := s.run(t, b, m, at)
			reached, longest[r.faultedCall] = r.first.link.sent() >= at, max(longest[r.faultedCall], r.drained)
		})
		if !reached {
			break
		}
		points++
	}
	if m.fault.hangs {
		t.Logf("longest drain with one call %s, by the call: %v", m.name, longest)
	}
	if points*callStep < untouched*2/3 {
		t.Errorf("calls at which it happened = %d, want about the %d of an untouched life", points, untouched)
	}
	return points
}

// referenceRun returns the calls of the worker when nothing happens, and fails
// unless the scenario is what it claims to be.
func (s scenario) referenceRun(t *testing.T) (calls []string) {
	t.Helper()
	inBubble(t, func(t *testing.T, b *testbed) {
		r := s.begin(t, b)
		noted := b.ledger.note
		b.server.OnResult(func(result storage.Result) {
			if b.ledger.sender == subject {
				calls = append(calls, result.Operation)
			}
			noted(result)
		})
		r.first = b.start(subject, r.kinds, s.first)
		s.act(t, b, r)
		r.first.stop()
		if n := len(r.first.log.find(s.wantLog)); n == 0 {
			t.Errorf("log of a worker that nothing happens to has no %q", s.wantLog)
		}
		s.end(t, b, r)
	})
	return calls
}

// subject is the worker to which faults happen.
const subject = "vm_0"

// run lets the fault happen at one call.
func (s scenario) run(t *testing.T, b *testbed, m callFault, at int) *scenarioRun {
	r := s.begin(t, b)
	r.first = b.start(subject, r.kinds, s.first)
	r.first.injectFault(m, at, &r.faultedCall)
	s.act(t, b, r)
	r.first.stop()
	r.drained = r.checkDrain(t, m)
	s.end(t, b, r)
	may := m.maxRepeated(r.work.each)
	if s.twice {
		may += stepsPerCheckpoint(r.work.each)
		if m.fault.hangs { // the write that tells one from the other waits for the end of its try
			may += int(30 * time.Second / r.work.each)
		}
	}
	if n := r.work.repeated("long"); n > may {
		t.Errorf("steps repeated = %d, want at most %d", n, may)
	}
	if t.Failed() {
		t.Logf("%s, %s at call %d:", s.name, m.name, at)
		for id := range s.want {
			t.Logf("the story of job %s:\n%s", id, b.ledger.storyOf(id))
		}
	}
	return r
}

// hangingCallDrain is how long a drain may take if one call gets no answer and its
// connection stays open. One to which nothing happens takes no time here.
const hangingCallDrain = time.Second + 50*time.Millisecond

// checkDrain returns how long the drain of the first worker took. It must not take
// long, and must save all, if one call was swallowed.
func (r *scenarioRun) checkDrain(t *testing.T, m callFault) (took time.Duration) {
	t.Helper()
	for _, line := range r.first.log.find("drained") {
		took = time.Duration(line["since_notice"].(float64))
		if m.fault.hangs && (took > hangingCallDrain || line["states_left_out"] != 0.0) {
			t.Errorf("drained after %s with %v states left out, want at most %s and none", took, line["states_left_out"], hangingCallDrain)
		}
	}
	return took
}

// maxRepeated is how many steps may be done twice: after a death those of one
// checkpoint interval and one save, and otherwise the one in hand.
func (m callFault) maxRepeated(step time.Duration) int {
	if m.fault.crash == 0 && m.duration == 0 {
		return 1
	}
	return stepsPerCheckpoint(step) + int(m.duration/step) + 1
}

// stepsPerCheckpoint is how many steps there are between two saves.
func stepsPerCheckpoint(step time.Duration) int {
	return int(checkpoint.DefaultPolicy().Shortest / step)
}

// begin prepares storage for the worker that faults happen to.
func (s scenario) begin(t *testing.T, b *testbed) *scenarioRun {
	b.chunk = smallChunk
	b.observe()
	r := &scenarioRun{}
	r.kinds = r.handlers(b.ledger)
	s.prepare(t, b, r)
	return r
}

// end lets another worker finish, and checks what came of everything.
func (s scenario) end(t *testing.T, b *testbed, r *scenarioRun) {
	b.start("vm_1", r.kinds, s.second)
	b.waitFor("no message left", 15*time.Minute, func() bool { return b.messagesLeft() == 0 })
	b.ledger.stragglers.Wait()
	for id, want := range s.want {
		b.checkOutcome(t, id, want)
	}
	b.ledger.check(t)
}

// injectFault lets the fault happen at the worker's call number at, and says in struck
// which one that is.
func (p *process) injectFault(m callFault, at int, struck *string) {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	var end time.Time
	p.link.faultFor = func(n int, r *http.Request) requestFault {
		if n == at {
			end, *struck = time.Now().Add(m.duration), callOf(r)
		}
		if n < at || n > at && !time.Now().Before(end) {
			return requestFault{}
		}
		f := m.fault
		if f.crash != 0 {
			f.onSend = p.term // its handlers do nothing more
		}
		return f
	}
}

// checkOutcome checks the one outcome of a job that was to end with that status,
// and what it leaves behind.
func (b *testbed) checkOutcome(t *testing.T, id string, want checkpoint.Status) {
	t.Helper()
	r := b.record(id)
	if r.Status != want {
		t.Errorf("job %s = %q %s, want %s", id, r.Status, r.Reason, want)
	}
	if n := b.ledger.outcomesOf(id); n != 1 {
		t.Errorf("outcomes of job %s = %d, want 1", id, n)
	}
	kept := false
	for _, p := range b.poisonMessages() {
		kept = kept || p.ID == id
	}
	if isPoison := want == checkpoint.Poison; kept != isPoison {
		t.Errorf("job %s is in the poison queue: %t, want %t", id, kept, isPoison)
	}
	if want == checkpoint.Done && !b.ledger.wasCleared() { // what a cleared message named stays for its age rule
		for _, blob := range b.server.Blobs(b.names.Payloads) {
			if strings.HasPrefix(blob.Name[len("hhh/"):], id+"/") {
				t.Errorf("payload %s of a job that is done was left behind", blob.Name)
			}
		}
	}
}

// coverage is how many points were covered.
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
		for _, m := range callFaults {
			n := c.points[s.name][m.name]
			fmt.Fprintf(&b, " %5d", n)
			sum += n
		}
		fmt.Fprintf(&b, " %6d", sum)
		all += sum
	}
	var names []string
	for _, m := range callFaults {
		names = append(names, m.name)
	}
	t.Logf("%d crash points: scenarios by mishaps (%s), and their sum%s", all, strings.Join(names, ", "), b.String())
}

// scenarioRun is one run of a scenario.
type scenarioRun struct {
	work  *steps
	kinds job.Kinds
	first *process

	faultedCall string        // the call to which the mishap happened
	drained     time.Duration // from the notice until the first worker had released everything
}

// callOf names a request by its method and the queue or container it is for.
func callOf(r *http.Request) string {
	place := strings.Split(r.URL.Path, "/")[2] // behind the account
	return strings.TrimSpace(r.Method + " " + place + " " + r.URL.Query().Get("comp"))
}
