package web

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/client/clienttest"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// manyJobs are jobs as they are read: each read makes new ones.
func manyJobs(n int, read int64) (jobs []client.Job) {
	now := time.Now()
	for i := range n {
		j := client.Job{ID: fmt.Sprintf("job-%06d", i), Kind: fmt.Sprint("kind-", i%4), Status: client.StatusDone, Owner: fmt.Sprint("w-", i%9),
			UpdatedAt: now.Add(-time.Duration(i) * time.Second), ReadAt: now, RunTime: time.Duration(i) * time.Millisecond,
			Cost: client.Cost{Useful: time.Duration(i) * time.Second}}
		j.EndedAt = j.UpdatedAt
		if i%20 == 0 {
			j.Status, j.EndedAt, j.Fraction = client.StatusRunning, time.Time{}, float64(read%100)/100
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// TestMemoryIsFlat: an hour of reads with two tabs, one of them slow, and a quarter of an hour in
// a quick run, keep no more memory at their end than after their first part.
func TestMemoryIsFlat(t *testing.T) {
	var reads atomic.Int64
	r := setupOf(t, Config{Client: clienttest.New(t, nil), Explain: error.Error, Every: time.Hour, AllowChanges: true,
		Read: func(_ context.Context, each func(client.Job), _ func(overview.Snapshot)) (overview.Snapshot, error) {
			s := overview.Snapshot{At: time.Now(), Jobs: overview.Jobs{ByStatus: map[client.Status]int{}}}
			for _, j := range manyJobs(40, reads.Add(1)) {
				s.Jobs.ByStatus[j.Status]++
				if j.Status == client.StatusRunning {
					s.Jobs.Running = append(s.Jobs.Running, j)
				}
				each(j)
			}
			return s, nil
		}})
	now := r.follow(t, "/")
	r.follow(t, "/jobs?sort=id") // reads none of the events
	now()
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	hour := proof.Times(160, 720) // reads of 5 s
	var after [3]int
	for part, n := range []int{hour, hour / 4, hour / 4} {
		for i := range n {
			r.feed.again()
			now()
			if i%8 == 0 { // other filters
				r.get(t, fmt.Sprintf("/rows?id=%d", i%100))
			}
		}
		after[part] = heap()
	}
	v, _ := r.feed.now()
	t.Logf("heap after %d reads, a quarter and half more: %d, %d, %d KiB; %d samples; %d selections", hour, after[0]>>10, after[1]>>10,
		after[2]>>10, len(v.history), len(r.selections.last))
	if grown := max(after[1], after[2]) - after[0]; grown > proof.Times(1<<20, 2<<20) {
		t.Errorf("the heap grew by %d KiB after the first %d reads", grown>>10, hour)
	}
	if len(v.history) > mostSamples || len(r.selections.last) > mostSelections {
		t.Errorf("%d samples and %d selections, want at most %d and %d", len(v.history), len(r.selections.last), mostSamples, mostSelections)
	}
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	if r.feed.open != 2 {
		t.Errorf("%d streams, want 2", r.feed.open)
	}
}
