package drain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/job"
)

// TestDrainTimes: handlers get half, states three quarters, and all of it ends
// with the budget.
func TestDrainTimes(t *testing.T) {
	seen := time.Now()
	d := New(job.Evicted, errors.New("why"), seen, 8*time.Second)
	want := func(handlers, states, end time.Duration) {
		t.Helper()
		got, _ := d.Schedule()
		if want := (Schedule{seen.Add(handlers), seen.Add(states), seen.Add(end)}); got != want || !d.Stop().Deadline.Equal(want.Handlers) {
			t.Errorf("times = %v, want %v", got, want)
		}
	}
	want(4*time.Second, 6*time.Second, 8*time.Second)
	if d.shorten(Schedule{seen.Add(time.Minute), seen.Add(time.Minute), seen.Add(time.Minute)}) {
		t.Error("a later limit shortened the drain")
	}
	want(4*time.Second, 6*time.Second, 8*time.Second)
	_, changed := d.Schedule()
	if !d.shorten(Schedule{seen.Add(5 * time.Second), seen.Add(5 * time.Second), seen.Add(6 * time.Second)}) {
		t.Error("an earlier limit did not shorten the drain")
	}
	want(4*time.Second, 5*time.Second, 6*time.Second)
	select {
	case <-changed:
	default:
		t.Error("those who wait for the drain were not told")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(d)
	if stop := job.StopOf(ctx); stop == nil || stop.Reason != job.Evicted || !strings.Contains(stop.Error(), "why") {
		t.Errorf("StopOf = %v, want the eviction and why", stop)
	}
}

// TestDrainsOfSingleJobs: in either order, a job's own drain keeps to the times of the
// worker's, and is forgotten when the job has ended.
func TestDrainsOfSingleJobs(t *testing.T) {
	now := time.Now()
	for name, inOrder := range map[string]func(s *Set, worker, own *Drain){
		"the worker's first": func(s *Set, worker, own *Drain) { s.Impose(worker); s.Add(own) },
		"the job's first":    func(s *Set, worker, own *Drain) { s.Add(own); s.Impose(worker) },
	} {
		s, worker, own := &Set{}, New(job.Evicted, nil, now, 2*time.Second), ForJob(job.Silent, nil, now)
		inOrder(s, worker, own)
		want, _ := worker.Schedule()
		if got, _ := own.Schedule(); got != want {
			t.Errorf("%s: times = %v, want the worker's %v", name, got, want)
		}
		if own.Stop().Reason != job.Silent {
			t.Errorf("%s: reason = %s, want its own", name, own.Stop().Reason)
		}
		if s.Remove(own); s.Len() != 1 {
			t.Errorf("%s: drains after the job's end = %d, want the worker's alone", name, s.Len())
		}
	}
}
