package hostile

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestCleanup: cleanup functions run after any outcome of the job is recorded, the last
// one first. A panic in one does not keep the others from running.
func TestCleanup(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var mu sync.Mutex
		var cleaned []string
		handler := func(err error) job.Handler {
			return job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
				j.Cleanup(func() {
					mu.Lock()
					defer mu.Unlock()
					cleaned = append(cleaned, j.ID+" "+string(b.Record(j.ID).Status))
				})
				j.Cleanup(func() { panic("in a cleanup") })
				j.Cleanup(func() {})
				return nil, err
			})
		}
		b.Put("good", "good", "")
		b.Put("bad", "bad", "")
		b.Start("vm_0", job.Kinds{"good": handler(nil), "bad": handler(job.Permanent(errors.New("no")))})
		b.WaitFor("both ended", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(cleaned)
		if want := []string{"bad poison", "good done"}; !slices.Equal(cleaned, want) {
			t.Errorf("cleanups beside one that panicked = %q, want %q", cleaned, want)
		}
	})
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var mu sync.Mutex
		var order []string
		add := func(what string) func() {
			return func() {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, what+" "+string(b.Record("a").Status))
			}
		}
		h := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			j.Cleanup(add("first"))
			j.Cleanup(add("second"))
			return nil, nil
		})
		b.Put("a", "h", "")
		p := b.Start("vm_0", job.Kinds{"h": h})
		b.WaitDone("a", time.Minute)
		p.Stop()
		if want := []string{"second done", "first done"}; !slices.Equal(order, want) {
			t.Errorf("cleanups = %q, want %q: the last one first, and after the commit", order, want)
		}
	})
}

// TestUnreadableStream: a streamed state that cannot be read is left out of the
// record. The failures of its job still count, and the job is dead-lettered.
func TestUnreadableStream(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		gone := func() (io.ReadCloser, error) { return nil, errors.New("file removed") }
		h := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{Stream: gone})
			return nil, errors.New("and failed")
		})
		b.Put("a", "h", "")
		b.Start("vm_0", job.Kinds{"h": h})
		b.WaitFor("poison", 10*time.Minute, func() bool { return b.Record("a").Status == checkpoint.Poison })
		b.WaitFor("message gone", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if r := b.Record("a"); r.HasState() {
			t.Errorf("record = %+v, want no state", r)
		}
	})
}
