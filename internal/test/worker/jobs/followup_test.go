package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestFollowUpJobs: a handler that fails half-way puts its follow-up jobs again, and
// each of them runs once.
func TestFollowUpJobs(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const n = 5
		var parents, children atomic.Int64
		big := strings.Repeat("x", 100<<10) // does not fit into a message
		kinds := job.Kinds{
			"parent": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
				run := parents.Add(1)
				for i := range n {
					if run == 1 && i == n-1 {
						return nil, errors.New("out of luck")
					}
					id, err := j.Put(ctx, job.FollowUp{Name: fmt.Sprint(i), Kind: "child", Payload: []byte(big[:100<<(5*min(i, 2))])})
					if err != nil || id != j.Key(fmt.Sprint(i)) {
						return nil, fmt.Errorf("put %d = %s, %w", i, id, err)
					}
				}
				job.Logger(ctx).InfoContext(ctx, "all put", "jobs", n)
				return []byte("put"), nil
			}),
			"child": job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
				children.Add(1)
				return []byte(fmt.Sprint(len(j.Payload))), nil
			}),
			"lost": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
				_, err := j.Put(ctx, job.FollowUp{Name: "x", Kind: "no kind"})
				return nil, err
			}),
		}
		p := b.Start("vm_0", kinds)
		b.Put("parent", "parent", "")
		b.Put("lost", "lost", "")
		b.WaitDone("parent", time.Minute)
		for i := range n {
			b.WaitDone(job.New(job.Spec{ID: "parent"}, nil).Key(fmt.Sprint(i)), time.Minute)
		}
		b.WaitFor("the queue to be empty", time.Hour, func() bool { return b.MessagesLeft() == 0 })
		if parents.Load() != 2 || children.Load() != n {
			t.Errorf("%d runs of the parent and %d of its follow-up jobs, want 2 and %d", parents.Load(), children.Load(), n)
		}
		var put []string
		for i := range n {
			put = append(put, job.New(job.Spec{ID: "parent"}, nil).Key(fmt.Sprint(i)))
		}
		if named, more := b.Record("parent").FollowUps.IDs(); !slices.Equal(named, put) || more {
			t.Errorf("the record names %q, more %t, want each follow-up job once: %q", named, more, put)
		}
		if r := b.Record("lost"); r.FollowUps != "" || r.Status != checkpoint.Poison ||
			!strings.Contains(r.Reason, `put the follow-up job "x": kind "no kind"`) {
			t.Errorf("job with an invalid follow-up job = %s: %s, want poison at once", r.Status, r.Reason)
		}
		lines := p.Log.Find("all put")
		if len(lines) != 1 || lines[0]["job_id"] != "parent" || lines[0]["kind"] != "parent" || lines[0]["generation"] == nil ||
			lines[0]["jobs"] != float64(n) {
			t.Errorf("the handler logged %v, want one line with the job's fields", lines)
		}
	})
}

// TestFollowUpJobsAfterACancel: a handler that ignores its context puts no follow-up jobs once
// its worker has learnt that the job was cancelled.
func TestFollowUpJobsAfterACancel(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var last atomic.Int64 // when a follow-up job was put last
		var refused atomic.Int64
		began := time.Now()
		p := b.Start("vm_0", job.Kinds{
			"parent": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
				for n := range 90 {
					if _, err := j.Put(context.WithoutCancel(ctx), job.FollowUp{Name: fmt.Sprint(n), Kind: "child"}); err == nil {
						last.Store(int64(time.Since(began)))
					} else {
						refused.Add(1)
					}
					time.Sleep(time.Second)
				}
				return nil, nil
			}),
			"child": rig.Echo,
		})
		b.Put("parent", "parent", "")
		time.Sleep(30 * time.Second)
		b.CancelJobs("parent")
		cancelled := time.Since(began)
		time.Sleep(2 * time.Minute)
		p.Stop()
		if after := time.Duration(last.Load()) - cancelled; after > 16*time.Second {
			t.Errorf("the last follow-up job was put %s after the cancel, want at most the 15s in which a worker reads the control document", after)
		}
		if refused.Load() < 40 {
			t.Errorf("%d puts were refused, want all after the stop", refused.Load())
		}
	})
}
