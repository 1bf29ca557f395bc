package delivery_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// handle shortens the handlers of this file.
func handle(f func(ctx context.Context, j *job.Job) ([]byte, error)) job.Kinds {
	return job.Kinds{"k": job.HandlerFunc(f)}
}

// sleeps waits, or returns the cause of a stop.
func sleeps(ctx context.Context, d time.Duration) error {
	if !rig.SleepFor(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// TestEndsOfRuns: how a handler ends decides the record, the queues and the calls of the observer.
func TestEndsOfRuns(t *testing.T) {
	big := make([]byte, job.MaxState+1)
	for name, row := range map[string]struct {
		run     func(ctx context.Context, j *job.Job) ([]byte, error)
		status  checkpoint.Status
		reason  string // a part of that in the record
		class   string // of the failure; empty for none
		outcome string
		left    int // messages
	}{
		"a result": {func(context.Context, *job.Job) ([]byte, error) { return []byte("r"), nil }, checkpoint.Done, "", "", "committed", 0},
		"a panic": {func(context.Context, *job.Job) ([]byte, error) { panic("oh") }, checkpoint.Open, "handler panicked: oh", "panic", "failed",
			1},
		"a failure": {func(context.Context, *job.Job) ([]byte, error) { return nil, errors.New("out of luck") }, checkpoint.Open, "out of luck",
			"error", "failed", 1},
		"a permanent error": {func(context.Context, *job.Job) ([]byte, error) { return nil, job.Permanent(errors.New("never")) },
			checkpoint.Poison, "never", "permanent", "poisoned", 0},
		"a break": {func(context.Context, *job.Job) ([]byte, error) { return nil, job.Interrupted(errors.New("wait")) }, checkpoint.Open, "", "",
			"released", 1},
		"a result that is too large": {func(context.Context, *job.Job) ([]byte, error) { return big[:job.MaxResult+1], nil }, checkpoint.Poison,
			"result has 1048577 bytes", "too_large", "poisoned", 0},
		"a failure with a result that is too large": {func(context.Context, *job.Job) ([]byte, error) {
			return big[:job.MaxResult+1], errors.New("out of luck")
		}, checkpoint.Open, "out of luck", "error", "failed", 1},
		"a state that is too large": {func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: big})
			<-ctx.Done()
			return []byte("r"), nil
		}, checkpoint.Poison, "state has 8388609 bytes", "too_large", "poisoned", 0},
		"a failure with a state that is too large": {func(_ context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: big})
			return nil, errors.New("out of luck")
		}, checkpoint.Open, "out of luck", "error", "failed", 1},
		"outputs that can never be sent": {func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.BeforeSave(func(context.Context) error { return job.Permanent(errors.New("no such file")) })
			j.Report(job.Progress{State: []byte("s")})
			<-ctx.Done()
			return []byte("r"), nil
		}, checkpoint.Poison, "no such file", "too_large", "poisoned", 0},
		"a failure with a stream whose outputs can never be sent": {func(_ context.Context, j *job.Job) ([]byte, error) {
			j.BeforeSave(func(context.Context) error { return job.Permanent(errors.New("no such file")) })
			j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("s")), nil }})
			return nil, errors.New("out of luck")
		}, checkpoint.Poison, "no such file", "too_large", "poisoned", 0},
		"a stream that cannot be read": {func(_ context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return nil, errors.New("bad disk") }})
			return nil, errors.New("out of luck")
		}, checkpoint.Open, "out of luck", "error", "failed", 1},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, handle(row.run), func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				if got := b.runOne(); got != delivery.Ran {
					t.Errorf("result = %d, want %d: the job ran", got, delivery.Ran)
				}
				if r := b.Record("a"); r.Status != row.status || !strings.Contains(r.Reason, row.reason) || r.HasState() {
					t.Errorf("record = %s, %q, state %t; want %s, %q, none", r.Status, r.Reason, r.HasState(), row.status, row.reason)
				}
				if n := b.counter.Of("ended " + row.outcome)["ended "+row.outcome]; n != 1 || b.MessagesLeft() != row.left {
					t.Errorf("%s %d times, %d messages left; want once, and %d", row.outcome, n, b.MessagesLeft(), row.left)
				}
				failures := 0
				if row.class != "" {
					failures = b.counter.Of("failed k, " + row.class)["failed k, "+row.class]
				}
				if all := b.counter.WithPrefix("failed"); all != failures || row.class != "" && failures != 1 {
					t.Errorf("failures = %d, %d of class %q; want that class once, or none", all, failures, row.class)
				}
				if wants := row.status == checkpoint.Poison; wants != (len(b.PoisonMessages()) == 1) {
					t.Errorf("poison messages = %+v, want one: %t", b.PoisonMessages(), wants)
				}
				if jobs := b.Jobs(); len(jobs) != 0 || len(b.Running()) != 0 || b.config.Drains.Len() != 0 {
					t.Errorf("still active: %v, %v, %d drains", jobs, b.Running(), b.config.Drains.Len())
				}
			})
		})
	}
}

// TestSaveAfterALongRead: a save that was put off, because the handler read the state before, follows the end of the reader within seconds,
// also if saves are rare since each takes long.
func TestSaveAfterALongRead(t *testing.T) {
	var size func() int64
	var took time.Duration
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		from, _, err := j.OpenSaved()
		if err != nil {
			return nil, err
		}
		for _, path := range []string{"1", "2"} { // saves without a state
			if err := errors.Join(j.SendOutput(ctx, path, strings.NewReader(path)), sleeps(ctx, time.Minute)); err != nil {
				return nil, err
			}
		}
		j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("new")), nil }})
		if err := errors.Join(sleeps(ctx, 20*time.Minute), from.Close()); err != nil {
			return nil, err
		}
		for begun := time.Now(); size() != 3 && took < 10*time.Minute; took = time.Since(begun) {
			if err := sleeps(ctx, time.Second); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		size = func() int64 { return b.Record("a").StateSize }
		b.putOpen("a", "k", checkpoint.Snapshot{Stream: rig.LargeProgress(1).Stream})
		b.delay(time.Second, on(b.Names.Records, storage.OpSetBlobMetadata, storage.OpPutBlob, storage.OpPutBlockList))
		b.runOne()
		putOff := b.lines("checkpoint put off: the handler is still reading the one before")
		if r := b.Record("a"); r.Status != checkpoint.Done || r.Outputs.Files != 2 || putOff == 0 || took > 15*time.Second {
			t.Errorf("record = %s with %d outputs, saved %s after the end of the reader, put off %d times; want it done with 2, within seconds",
				r.Status, r.Outputs.Files, took, putOff)
		}
	})
}

// TestOutputsAtTheEnd: a release and a commit name the outputs that were sent without a state, and so does the end of a
// job that is to blame for its failure; another failure does not. The
// list of the outputs is stored before, however many tries that takes.
func TestOutputsAtTheEnd(t *testing.T) {
	for name, row := range map[string]struct {
		err   error
		files int
	}{
		"done": {nil, 1}, "break": {job.Interrupted(errors.New("wait")), 1}, "failure": {errors.New("no"), 0},
		"permanent": {job.Permanent(errors.New("never")), 0}, "own fault": {job.OwnFault(job.Permanent(errors.New("never"))), 1},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				return nil, errors.Join(j.SendOutput(ctx, "x", strings.NewReader("x")), row.err)
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				refused := 0 // tries to store the list
				b.fail(http.StatusForbidden, "AuthorizationFailure", func(c storage.Call) bool {
					chosen := on(b.Names.Outputs, storage.OpPutBlob)(c) && strings.Contains(c.Blob, "/manifest-") && refused < 8
					if chosen {
						refused++
					}
					return chosen
				})
				b.runOne()
				if r := b.Record("a"); r.Outputs.Files != row.files || b.counter.Of("output sent")["output sent"] != 1 ||
					len(b.FilesOf("a")) != row.files || (refused == 8) != (row.files == 1) {
					t.Errorf("record = %s with %d outputs after %d refused tries, want %d", r.Status, r.Outputs.Files, refused, row.files)
				}
			})
		})
	}
}
