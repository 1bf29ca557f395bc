package worker

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/job"
)

// echo returns its payload at once.
var echo = job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) { return j.Payload, nil })

// steps is a handler of n steps of equal length. It reports each one, and counts
// how often each step of each job was finished.
type steps struct {
	n    int
	each time.Duration

	mu   sync.Mutex
	runs map[string][]int
}

func (s *steps) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	next := 0
	if state, _, ok := j.Saved(); ok {
		next = int(binary.BigEndian.Uint32(state))
	}
	return s.runFrom(ctx, j, next, func(n int) job.Progress {
		return job.Progress{State: binary.BigEndian.AppendUint32(nil, uint32(n))}
	})
}

// runFrom does the steps from number next on, and reports what progress returns
// for the number of steps done.
func (s *steps) runFrom(ctx context.Context, j *job.Job, next int, progress func(n int) job.Progress) ([]byte, error) {
	for ; next < s.n; next++ {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(s.each):
		}
		s.ran(j.ID, next)
		p := progress(next + 1)
		p.Fraction, p.Text = float64(next+1)/float64(s.n), fmt.Sprintf("%d of %d", next+1, s.n)
		j.Report(p)
	}
	return []byte("finished"), nil
}

// ran counts a step as finished.
func (s *steps) ran(id string, step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[string][]int{}
	}
	for len(s.runs[id]) <= step {
		s.runs[id] = append(s.runs[id], 0)
	}
	s.runs[id][step]++
}

// repeated returns how many steps of the job were finished more than once.
func (s *steps) repeated(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, runs := range s.runs[id] {
		n += runs - 1
	}
	return n
}

// forget resets the counts of all steps.
func (s *steps) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = nil
}

// done returns how many steps of the job were finished at least once.
func (s *steps) done(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs[id])
}

// jobs returns how many jobs finished at least one step.
func (s *steps) jobs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs)
}

// TestShortJobCommits: a short job's result and record are written once, and its
// message is deleted.
func TestShortJobCommits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.put("a", "echo", `{"n": 1}`)
		b.start("vm_0", job.Kinds{"echo": echo})
		b.waitDone("a", time.Minute)
		synctest.Wait()

		result, err := b.records.Result(t.Context(), "a")
		if err != nil || string(result) != `{"n":1}` {
			t.Errorf("Result = %q, %v, want the compact payload", result, err)
		}
		if got := b.messagesLeft(); got != 0 {
			t.Errorf("messages left = %d, want 0", got)
		}
		r := b.record("a")
		if r.Generation != 1 || r.Owner != "vm_0-11112222-0" || r.Fraction != 1 {
			t.Errorf("record = %+v, want generation 1, the worker as owner, all of it done", r)
		}
	})
}

// TestShortJobCost is promise 7: a short job costs 2 + 1/32 storage calls, and a
// first delivery reads no record.
func TestShortJobCost(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		const jobs = 32 * 20
		for i := range jobs {
			b.put(fmt.Sprintf("job-%d", i), "echo", "1")
		}
		b.server.ResetCounts()
		b.start("vm_0", job.Kinds{"echo": echo}, func(c *Config) { c.Concurrency = 32 })
		b.waitFor("all jobs gone", time.Minute, func() bool { return b.messagesLeft() == 0 })
		counts := b.server.Counts()

		// The others are warm-up, heartbeats, and claims from the empty queue. At its start a
		// worker reads its last heartbeat and the control document.
		want := map[string]int64{"DeleteMessage": jobs, "GetBlob": 2, "GetBlobProperties": 0, "UpdateMessage": 0, "SetBlobMetadata": 0}
		for op, n := range want {
			if counts[op] != n {
				t.Errorf("%s calls = %d, want %d", op, counts[op], n)
			}
		}
		records := 0
		for _, blob := range b.server.Blobs(b.names.Records) {
			if blob.Committed {
				records++
			}
		}
		heartbeats := int64(len(b.server.Blobs(b.names.Workers)))
		if puts := counts["PutBlob"]; records != jobs || puts < jobs+heartbeats || puts > jobs+10 {
			t.Errorf("PutBlob calls = %d for %d records, want one each and a few heartbeats", puts, records)
		}
		if claims := counts["GetMessages"]; claims < jobs/32 || claims > jobs/32+1 {
			t.Errorf("GetMessages calls = %d, want %d, or one more that found the queue empty", claims, jobs/32)
		}
	})
}

// TestLongJobIsSeenAndSaved: a running job has a record with its progress and state
// within seconds, and its message is renewed every 10 s.
func TestLongJobIsSeenAndSaved(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		work := &steps{n: 60, each: time.Second}
		b.put("long", "steps", "")
		b.start("vm_0", job.Kinds{"steps": work})
		b.waitFor("first checkpoint", 10*time.Second, func() bool { return b.record("long").HasState() })
		r := b.record("long")
		if r.Status != checkpoint.Running || r.Fraction == 0 || r.Text == "" || !r.Progressed {
			t.Errorf("record while running = %+v, want status running with progress", r)
		}
		b.waitDone("long", 2*time.Minute)
		if got := b.server.Counts()["UpdateMessage"]; got < 5 || got > 6 {
			t.Errorf("renewals in 60 s = %d, want one every 10 s", got)
		}
		if got := work.repeated("long"); got != 0 {
			t.Errorf("steps repeated = %d, want 0", got)
		}
	})
}

// TestQuietJobIsSeen: a job that reports nothing gets its record after 10 s.
func TestQuietJobIsSeen(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		quiet := job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
			time.Sleep(30 * time.Second)
			return nil, nil
		})
		b.put("quiet", "quiet", "")
		b.start("vm_0", job.Kinds{"quiet": quiet})
		b.waitFor("record", 12*time.Second, func() bool { return b.record("quiet").Status == checkpoint.Running })
		b.waitDone("quiet", time.Minute)
	})
}
