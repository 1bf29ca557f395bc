package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// TestWait waits for a job from before its first claim to its end.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		go func() {
			time.Sleep(time.Minute)
			claim := b.seed(t, "a", StatusRunning)
			time.Sleep(time.Minute)
			if err := claim.Commit(context.Background(), []byte("42")); err != nil {
				t.Error(err)
			}
		}()
		began := time.Now()
		got, err := Decode[int](b.Wait(t.Context(), "a"))
		if took := time.Since(began); got != 42 || err != nil || took < 2*time.Minute || took > 2*time.Minute+5*time.Second {
			t.Errorf("Wait = %d, %v after %s, want 42 at most 5 s after its end", got, err, took)
		}
		b.seed(t, "b", StatusPoison)
		if _, err := b.Wait(t.Context(), "b"); !errors.Is(err, ErrPoison) {
			t.Errorf("Wait for a job that was dead-lettered = %v, want ErrPoison", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := b.Wait(ctx, "missing"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait for a missing job = %v, want it to last as long as its context", err)
		}
	})
}

// TestWaitMany: outcomes come as jobs end, and the progress of the others before that.
func TestWaitMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		first, second := b.seed(t, "first", StatusRunning), b.seed(t, "second", StatusRunning)
		b.seed(t, "cancelled", StatusCancelled)
		go func() {
			ctx := context.Background()
			time.Sleep(time.Minute)
			err := second.Save(ctx, checkpoint.Snapshot{State: []byte("s"), Fraction: 0.25})
			time.Sleep(time.Minute)
			err = errors.Join(err, first.Commit(ctx, []byte("1")))
			time.Sleep(time.Minute)
			if err = errors.Join(err, second.Commit(ctx, []byte("2"))); err != nil {
				t.Error(err)
			}
		}()
		fractions := map[float64]bool{}
		var got []string
		for o, err := range b.WaitMany(t.Context(), []string{"first", "second", "cancelled"}, WaitOptions{
			Progress: func(j Job) { fractions[j.Fraction] = true },
		}) {
			if err != nil {
				t.Fatal(err)
			}
			if (o.Err == nil) != (o.Job.Status == StatusDone) || o.Job.Status == StatusCancelled && !errors.Is(o.Err, ErrCancelled) {
				t.Errorf("outcome of %s = %v", o.Job.ID, o.Err)
			}
			got = append(got, o.Job.ID+" "+string(o.Result))
		}
		if diff := cmp.Diff([]string{"cancelled ", "first 1", "second 2"}, got); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		if !fractions[0] || !fractions[0.25] {
			t.Errorf("progress = %v, want 0 and 0.25", fractions)
		}
	})
}

// TestWaitManyLeft: a loop that ends early leaves nothing behind.
func TestWaitManyLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var ids []string
		for _, id := range []string{"a", "b", "c"} {
			b.seed(t, id, StatusDone)
			ids = append(ids, id)
		}
		for o, err := range b.WaitMany(t.Context(), append(ids, "missing"), WaitOptions{}) {
			if err != nil || o.Job.Status != StatusDone {
				t.Errorf("first outcome = %+v, %v, want one that is done", o, err)
			}
			break
		}
		time.Sleep(time.Second)
		b.server.ResetCounts()
		time.Sleep(time.Minute)
		if n := b.server.Counts(); len(n) > 0 {
			t.Errorf("calls after the loop's end = %v, want none", n)
		}
		var invalid []error
		for _, err := range b.WaitMany(t.Context(), []string{"a", "not/an id"}, WaitOptions{}) {
			invalid = append(invalid, err)
		}
		if len(invalid) != 1 || invalid[0] == nil {
			t.Errorf("outcomes with an invalid id = %v, want one error", invalid)
		}
	})
}

// TestWaitManyWhoseContextEnds: an outcome that the loop did not take is not lost without an
// error.
func TestWaitManyWhoseContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.seed(t, "a", StatusDone)
		b.seed(t, "b", StatusDone)
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		enough := errors.New("enough")
		var last error
		for _, err := range b.WaitMany(ctx, []string{"a", "b"}, WaitOptions{}) {
			last = err
			if err == nil {
				time.Sleep(time.Second) // the other outcome waits for this loop
				cancel(enough)
				synctest.Wait()
			}
		}
		if !errors.Is(last, enough) {
			t.Errorf("WaitMany whose context ends = %v, want its cause", last)
		}
	})
}
