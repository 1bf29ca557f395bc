package delivery_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
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

// TestReturnAfterAStop: once a job is stopped, only a result or a report of fraction 1 commits it.
func TestReturnAfterAStop(t *testing.T) {
	for name, row := range map[string]struct {
		result   []byte
		err      error
		fraction float64 // reported after the stop
		commits  bool
		reason   string // a part of the reason of the release
	}{
		"a result":            {[]byte("r"), nil, 0, true, ""},
		"an empty result":     {[]byte{}, nil, 0, true, ""},
		"nothing":             {nil, nil, 0.99, false, "neither a result nor a report of fraction 1"},
		"all is done":         {nil, nil, 1, true, ""},
		"an error":            {nil, errors.New("out of luck"), 1, false, "stopped: drained"},
		"a permanent error":   {[]byte("r"), job.Permanent(errors.New("never")), 1, false, "stopped: drained"},
		"the cause of a stop": {nil, context.Canceled, 0, false, "stopped: drained"},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				<-ctx.Done()
				j.Report(job.Progress{Fraction: row.fraction})
				return row.result, row.err
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				wait := b.begin(b.claim())
				time.Sleep(30 * time.Second)
				b.drainNow(10 * time.Second)
				wait()
				r, counts := b.Record("a"), delivery.Counts{Released: 1}
				if row.commits {
					counts = delivery.Counts{Committed: 1}
				}
				if (r.Status == checkpoint.Done) != row.commits || (r.Status == checkpoint.Open) == row.commits || b.Counts() != counts ||
					(b.MessagesLeft() == 0) != row.commits || r.FailuresTotal != 0 {
					t.Errorf("record = %s after %d failures, %+v, %d messages; want it done: %t", r.Status, r.FailuresTotal, b.Counts(),
						b.MessagesLeft(), row.commits)
				}
				released := b.log.Find("job released")
				if (len(released) == 0) != row.commits || !row.commits && !strings.Contains(released[0]["reason"].(string), row.reason) {
					t.Errorf("lines = %v, want none, or one with the reason %q", released, row.reason)
				}
			})
		})
	}
}

// TestSilence: reports that come in time keep a job running, also reports without a state. A silent job
// is stopped as soon as its time is over, and fails with any return value.
func TestSilence(t *testing.T) {
	const limit = 20 * time.Second
	var began, stopped time.Time
	run := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		for range 29 { // the last report comes between two rounds of the worker
			j.Report(job.Progress{Text: "alive"})
			if err := sleeps(ctx, limit-time.Second); err != nil {
				return nil, err
			}
		}
		j.Report(job.Progress{Text: "the last"})
		began = time.Now()
		<-ctx.Done()
		stopped = time.Now()
		return []byte("too late"), nil
	})
	onBench(t, job.Kinds{"k": job.WithLimits(run, job.Limits{MaxSilence: limit})}, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		b.runOne()
		if took := stopped.Sub(began); took < limit || took > limit+time.Second {
			t.Errorf("stopped %s after the last report, want %s", took, limit)
		}
		if r := b.Record("a"); r.Status != checkpoint.Open || r.FailuresTotal != 1 || b.counter.Of("failed k, silent")["failed k, silent"] != 1 {
			t.Errorf("record = %s after %d failures, want it open after one, for silence", r.Status, r.FailuresTotal)
		}
	})
}

// TestAbandonedHandler: a handler that ignores its stop is left alone after its grace. Its job stays
// away from this worker for a minute, and then is started again although the first handler still runs.
func TestAbandonedHandler(t *testing.T) {
	var end chan struct{}
	var runs atomic.Int64
	run := job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
		if runs.Add(1) == 1 {
			<-end
			return []byte("too late"), nil
		}
		return []byte("second"), nil
	})
	kinds := job.Kinds{"k": job.WithLimits(run, job.Limits{MaxSilence: 30 * time.Second, Backoff: 20 * time.Second})}
	onBench(t, kinds, func(t *testing.T, b *bench) {
		end = make(chan struct{})
		defer func() { close(end); time.Sleep(time.Second) }()
		b.Put("a", "k", "")
		begun := time.Now()
		b.runOne()
		if took := time.Since(begun); took < 35*time.Second || took > 36*time.Second {
			t.Errorf("abandoned after %s, want 30 s of silence and 5 s of grace", took)
		}
		if ran := b.Record("a").RunTime; ran > 36*time.Second || b.lines("handler did not return in time; continuing without it") != 1 {
			t.Errorf("run time = %s, want no more than until it was abandoned, and one line about that", ran)
		}
		time.Sleep(21 * time.Second)
		if got := b.runOne(); got != delivery.NotRun || runs.Load() != 1 || b.Record("a").Status != checkpoint.Open {
			t.Errorf("the second delivery = %d after %d runs, record %s; want it put back", got, runs.Load(), b.Record("a").Status)
		}
		time.Sleep(time.Minute)
		if got := b.runOne(); got != delivery.Ran || runs.Load() != 2 || b.Record("a").Status != checkpoint.Done {
			t.Errorf("the delivery a minute later = %d after %d runs, record %s; want it done", got, runs.Load(), b.Record("a").Status)
		}
	})
}

// TestAbandonedHandlerReturns: once a handler that was abandoned has returned, its job may be started again on this worker.
func TestAbandonedHandlerReturns(t *testing.T) {
	runs := 0
	run := job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
		if runs++; runs == 1 {
			time.Sleep(45 * time.Second) // 30 s of silence, 5 s of grace
		}
		return []byte("done"), nil
	})
	kinds := job.Kinds{"k": job.WithLimits(run, job.Limits{MaxSilence: 30 * time.Second, Backoff: 20 * time.Second})}
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		b.runOne()
		time.Sleep(21 * time.Second)
		if got := b.runOne(); got != delivery.Ran || runs != 2 || b.Record("a").Status != checkpoint.Done {
			t.Errorf("the second delivery = %d after %d runs, record %s; want it done", got, runs, b.Record("a").Status)
		}
	})
}

// TestSaveWhileTheStateIsRead: a new state is not saved while the handler reads the one before, the record is
// written all the same, and the save follows the end of the reader.
func TestSaveWhileTheStateIsRead(t *testing.T) {
	old := rig.LargeState(1)
	var reads time.Duration
	var during checkpoint.Record
	var record func() checkpoint.Record
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		from, _, err := j.OpenSaved()
		if err != nil {
			return nil, err
		}
		j.Report(job.Progress{Fraction: 0.5, Stream: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("new")), nil }})
		if err := sleeps(ctx, 2*time.Minute); err != nil {
			return nil, err
		}
		during = record()
		if got, err := io.ReadAll(from); err != nil || !bytes.Equal(got, old) {
			return nil, errors.Join(errors.New("the state cannot be read"), err)
		}
		if err := from.Close(); err != nil {
			return nil, err
		}
		begun := time.Now()
		for record().StateSize != 3 {
			if err := sleeps(ctx, time.Second); err != nil || time.Since(begun) > 10*time.Minute {
				return nil, errors.Join(errors.New("not saved"), err)
			}
		}
		reads = time.Since(begun)
		return []byte("done"), nil
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		record = func() checkpoint.Record { return b.Record("a") }
		b.putOpen("a", "k", checkpoint.Snapshot{Stream: rig.LargeProgress(1).Stream})
		begun := time.Now()
		b.runOne()
		if r := b.Record("a"); r.Status != checkpoint.Done {
			t.Fatalf("record = %s %q, want done", r.Status, r.Reason)
		}
		if during.StateSize != int64(len(old)) || during.Fraction != 0.5 || during.ModifiedAt.Before(begun.Add(10*time.Second)) {
			t.Errorf("record during the read: %d bytes, fraction %v, written %s after the start; want the old state and a touch",
				during.StateSize, during.Fraction, during.ModifiedAt.Sub(begun))
		}
		if reads > time.Minute || b.lines("checkpoint put off: the handler is still reading the one before") == 0 {
			t.Errorf("the save came %s after the end of the reader, want it within a minute", reads)
		}
	})
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

// TestOutputThatIsNotSent: an output that cannot be sent before the worker stops is an error for its handler.
func TestOutputThatIsNotSent(t *testing.T) {
	var failed error
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		failed = j.SendOutput(ctx, "x", strings.NewReader("x"))
		return nil, failed
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.down(on(b.Names.Outputs, storage.OpPutBlob))
		b.Put("a", "k", "")
		wait := b.begin(b.claim())
		time.Sleep(20 * time.Second)
		b.drainNow(10 * time.Second)
		if wait(); failed == nil || b.Record("a").Outputs.Files != 0 || b.counter.WithPrefix("outputsent") != 0 || b.visible() != 1 {
			t.Errorf("send of the output = %v, %d outputs, %d visible messages; want an error, none, one", failed, b.Record("a").Outputs.Files,
				b.visible())
		}
	})
}

// TestOutputsAtTheEnd: a release and a commit name the outputs that were sent without a state, a failure does not. The
// list of the outputs is stored before, however many tries that takes.
func TestOutputsAtTheEnd(t *testing.T) {
	for name, row := range map[string]struct {
		err   error
		files int
	}{
		"done": {nil, 1}, "break": {job.Interrupted(errors.New("wait")), 1}, "failure": {errors.New("no"), 0},
		"permanent": {job.Permanent(errors.New("never")), 0},
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
				if r := b.Record("a"); r.Outputs.Files != row.files || b.counter.Of("outputsent")["outputsent"] != 1 ||
					len(b.FilesOf("a")) != row.files || (refused == 8) != (row.files == 1) {
					t.Errorf("record = %s with %d outputs after %d refused tries, want %d", r.Status, r.Outputs.Files, refused, row.files)
				}
			})
		})
	}
}
