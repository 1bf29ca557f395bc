package worker

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// mishap is what happens to a worker at one of its storage calls.
type mishap struct {
	name  string
	fault storage.Fault // for that call
	lasts time.Duration // and for all calls of this time
	death bool          // the worker dies: nothing it sends arrives any more
}

var mishaps = []mishap{
	{name: "request lost", fault: storage.Fault{DropRequest: true}},
	{name: "reply lost", fault: storage.Fault{DropReply: true}},
	{name: "throttled", fault: storage.Fault{Refuse: storage.ServerBusy(0)}},
	{name: "requests lost for 15s", fault: storage.Fault{DropRequest: true}, lasts: 15 * time.Second},
	{name: "replies lost for 15s", fault: storage.Fault{DropReply: true}, lasts: 15 * time.Second},
	{name: "death before", fault: storage.Fault{DropRequest: true}, death: true},
	{name: "death after the effect", fault: storage.Fault{DropReply: true}, death: true},
}

// TestEveryCall lets each mishap happen at each storage call of a worker that
// runs a short job, a failing one and a long one, and is then evicted. Whatever
// happens, another worker ends every job, once, and no message is left.
func TestEveryCall(t *testing.T) {
	everyCall(t, func(*testing.T, *process) {}, func(*Config) {}, func(*Config) {})
}

// TestEveryCallOfAMove is the same for a worker that moves the jobs which it has in
// hand to the on-demand queue, and one that takes from both queues.
func TestEveryCallOfAMove(t *testing.T) {
	everyCall(t, func(t *testing.T, first *process) {
		if n := len(first.log.find("job put on the on-demand queue")); n != 1 {
			t.Errorf("jobs moved by a worker that nothing happened to = %d, want the long one", n)
		}
	}, moveAfter(1), takeFromBoth)
}

// everyCall lets each mishap happen at each call of the first worker. untouched
// looks at one to which none happened.
func everyCall(t *testing.T, untouched func(*testing.T, *process), first, second func(*Config)) {
	t.Helper()
	for _, m := range mishaps {
		t.Run(m.name, func(t *testing.T) {
			points := 0
			for at := 1; ; at++ {
				reached := false
				inBubble(t, func(t *testing.T, b *bench) {
					p := runWithMishap(t, b, m, at, first, second)
					if reached = p.link.struck(); !reached {
						untouched(t, p)
					}
				})
				if !reached || t.Failed() {
					break
				}
				points++
			}
			if points < 15 {
				t.Errorf("calls at which it happened = %d, want the whole life of a worker", points)
			}
			t.Logf("%s: at each of %d calls", m.name, points)
		})
	}
}

// runWithMishap returns the first worker, which need not have come to the call.
func runWithMishap(t *testing.T, b *bench, m mishap, at int, configFirst, configSecond func(*Config)) *process {
	t.Helper()
	commits := countCommits(b)
	work := &steps{n: 24, each: 500 * time.Millisecond}
	var once sync.Once
	failsOnce := job.HandlerFunc(func(context.Context, *job.Job) (_ []byte, err error) {
		once.Do(func() { err = fmt.Errorf("first try") })
		return []byte("ok"), err
	})
	kinds := job.Kinds{"echo": echo, "steps": work, "fails": failsOnce}
	b.put("short", "echo", "1")
	b.put("fails", "fails", "1")
	b.put("long", "steps", "")

	first := b.start("vm_0", kinds, configFirst)
	first.strike(m, at)
	time.Sleep(7 * time.Second)
	first.stop()
	b.server.OnCall(nil)
	b.start("vm_1", kinds, configSecond)
	b.waitFor(fmt.Sprintf("call %d: no message left", at), 15*time.Minute, func() bool { return b.left() == 0 })

	for _, id := range []string{"short", "fails", "long"} {
		if r := b.record(id); r.Status != checkpoint.Done {
			t.Errorf("call %d: job %s = %s %q, want done", at, id, r.Status, r.Reason)
		}
		if n := commits(id); n != 1 {
			t.Errorf("call %d: job %s was committed %d times, want once", at, id, n)
		}
	}
	bound := 1
	if m.death || m.lasts > 0 {
		bound = int(checkpoint.DefaultPolicy().Shortest/work.each) + int(m.lasts/work.each) + 1
	}
	if n := work.repeated("long"); n > bound {
		t.Errorf("call %d: steps repeated = %d, want at most %d", at, n, bound)
	}
	return first
}

// strike lets the mishap happen at the worker's call number at.
func (p *process) strike(m mishap, at int) {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	p.link.strikeAt = at
	p.link.strike = func() {
		b := p.b
		end := time.Now().Add(m.lasts)
		var fired atomic.Bool
		b.server.OnCall(func(storage.Call) storage.Fault {
			if fired.Swap(true) && !time.Now().Before(end) {
				return storage.Fault{}
			}
			return m.fault
		})
		if m.death {
			p.link.dying = true
			p.term() // its handlers do nothing more
		}
	}
}

// countCommits watches the records for writes of status done that took effect.
func countCommits(b *bench) func(id string) int {
	var mu sync.Mutex
	seen := map[string]map[string]bool{}
	b.server.OnResult(func(r storage.Result) {
		if r.Operation != storage.OpPutBlob || r.Container != b.names.Records || r.Status != http.StatusCreated {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		state, _, _ := b.server.ReadBlob(r.Container, r.Blob)
		id := r.Blob[len("hhh/"):]
		if state.Metadata["status"] == string(checkpoint.Done) {
			if seen[id] == nil {
				seen[id] = map[string]bool{}
			}
			seen[id][r.ETag] = true
		}
	})
	return func(id string) int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen[id])
	}
}
