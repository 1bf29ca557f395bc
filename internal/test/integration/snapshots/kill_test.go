//go:build integration && linux

package snapshots

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/renewal"
	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/worker"
)

// mortal is the link of a worker to storage. Once it is cut nothing arrives any longer, as
// from a worker that was killed.
type mortal struct {
	next policy.Transporter
	cut  atomic.Bool
	dies chan struct{} // closed when it is cut

	mu     sync.Mutex
	states int         // writes of states and parts of them that began
	last   int         // the write that kills the worker; 0 for none
	lost   bool        // that write does not arrive
	saved  []time.Time // when states were recorded
}

var errKilled = errors.New("the worker was killed")

func newMortal(next policy.Transporter) *mortal {
	return &mortal{next: next, dies: make(chan struct{})}
}

func (m *mortal) kill() {
	if !m.cut.Swap(true) {
		close(m.dies)
	}
}

// Do implements [policy.Transporter].
func (m *mortal) Do(r *http.Request) (*http.Response, error) {
	if m.cut.Load() {
		return nil, errKilled
	}
	what := r.URL.Query().Get("comp")
	part := r.Method == http.MethodPut && strings.Contains(r.URL.Path, "job-1") && r.ContentLength > 0
	list := part && what == "blocklist"
	if part && (what == "block" || list) && m.killsWith() {
		if m.kill(); m.lost {
			return nil, errKilled
		}
	}
	reply, err := m.next.Do(r)
	if m.cut.Load() {
		if err == nil {
			_ = reply.Body.Close()
		}
		return nil, errKilled
	}
	if list && err == nil && reply.StatusCode == http.StatusCreated {
		m.mu.Lock()
		m.saved = append(m.saved, time.Now())
		m.mu.Unlock()
	}
	return reply, err
}

// killsWith counts a write, and reports whether the worker dies in it.
func (m *mortal) killsWith() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states++
	return m.states == m.last
}

// recorded returns how many states were recorded, and when the one before the last was.
func (m *mortal) recorded() (states int, before time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.saved); n > 1 {
		before = m.saved[n-2]
	}
	return len(m.saved), before
}

// every makes a worker save that often, and its job return soon after it was killed.
func every(interval time.Duration) func(*worker.Config) {
	return func(c *worker.Config) {
		c.DrainBudget, c.Visibility, c.Policy = 2*time.Second, renewal.MinVisibility, checkpoint.DefaultPolicy()
		c.Policy.Interval = interval
	}
}

// TestKilledInUploads kills workers in the upload of a snapshot, at random writes: half of
// them arrive. The job is never lost, and its result is right. After five kills before a write
// arrives a job would wait for a worker that has run for a minute, so there are five jobs.
func TestKilledInUploads(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	const jobs, kills = 5, 4
	for range jobs {
		t.Run("job", func(t *testing.T) {
			t.Parallel()
			k := pythonKind(t)
			server, c := storageWithJob(t, k)
			var dead sync.WaitGroup
			defer dead.Wait()
			for i := range kills {
				link, m := newMortal(server.Transport()), newMachine(t, nil)
				link.last, link.lost = 1+rand.N(6), rand.N(2) == 0
				stop := m.startWorkerOver(server, link, k, every(100*time.Millisecond))
				dead.Go(func() {
					<-link.dies
					stop()
				})
				select {
				case <-link.dies:
				case <-time.After(patience):
					link.kill()
					t.Fatalf("kill %d: no write %d of a state within %s; log:\n%s", i, link.last, patience, m.log)
				}
			}
			wantRightResult(t, c, k, func(m *machine) func() { return m.startWorker(server, k) })
		})
	}
}

// wantRightResult runs the job to its end, and wants the result of an undisturbed run.
func wantRightResult(t *testing.T, c *client.Client, k program.Kind, start func(*machine) func()) {
	t.Helper()
	m := newMachine(t, nil)
	stop := start(m)
	defer stop()
	until(t, m, "the program runs", func() bool { return m.runs(true) || m.runs(false) })
	m.letFinish()
	until(t, m, "the job is done", func() bool {
		j, err := c.Get(t.Context(), "job-1")
		return err == nil && j.Status == client.StatusDone
	})
	if result, err := c.Result(t.Context(), "job-1"); err != nil || string(result) != evicted(t, k, 0) {
		t.Errorf("result = %q, %v", result, err)
	}
	if j, err := c.Get(t.Context(), "job-1"); err != nil || j.Failures > 0 {
		t.Errorf("the job = %+v, %v, want no failure", j, err)
	}
}

// TestSuddenDeathRedoesAnInterval kills a worker between two snapshots. The program does at
// most the work again since the last snapshot that could be recorded.
func TestSuddenDeathRedoesAnInterval(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	const clock = `
import os, time
print("running", flush=True)
ticks = []
while not os.path.exists("finish"):
    ticks.append(time.time())
    time.sleep(0.02)
open(os.environ["SPOTWORKER_RESULT"], "w").write(" ".join(f"{t:.2f}" for t in ticks))
`
	const interval = 500 * time.Millisecond
	k := program.Kind{Name: "clock", Command: []string{need.Command(t, "python3"), "-c", clock}, Snapshot: true}
	server, c := storageWithJob(t, k)
	link, m := newMortal(server.Transport()), newMachine(t, nil)
	stop := m.startWorkerOver(server, link, k, every(interval))
	m.untilRuns(false)
	begun := time.Now()
	until(t, m, "snapshots are recorded", func() bool {
		n, _ := link.recorded()
		return n >= 4 && time.Since(begun) > 6*time.Second
	})
	link.kill()
	killed := time.Now()
	_, before := link.recorded()
	stop()
	next := newMachine(t, nil)
	stop = next.startWorker(server, k)
	next.untilRuns(true)
	next.letFinish()
	until(t, next, "the job is done", func() bool {
		j, err := c.Get(t.Context(), "job-1")
		return err == nil && j.Status == client.StatusDone
	})
	stop()
	result, err := c.Result(t.Context(), "job-1")
	if err != nil {
		t.Fatal(err)
	}
	kept := begun
	for word := range strings.FieldsSeq(string(result)) {
		seconds, err := strconv.ParseFloat(word, 64)
		if at := time.UnixMilli(int64(seconds * 1000)); err == nil && at.Before(killed) && at.After(kept) {
			kept = at
		}
	}
	redone, bound := killed.Sub(kept), killed.Sub(before)+interval+10*m.longestFreeze(t)
	t.Logf("of %s of work %s were done again, at most %s", killed.Sub(begun), redone, bound)
	if redone > bound {
		t.Errorf("%s of work were done again, want at most %s", redone, bound)
	}
}

var froze = regexp.MustCompile(`msg="snapshot taken".* took=(\S+)`)

// longestFreeze is how long the program was frozen for its longest snapshot, by the log. Ten
// times that is the shortest interval.
func (m *machine) longestFreeze(t *testing.T) (longest time.Duration) {
	t.Helper()
	for _, found := range froze.FindAllStringSubmatch(m.log.String(), -1) {
		took, err := time.ParseDuration(found[1])
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, took)
	}
	return longest
}
