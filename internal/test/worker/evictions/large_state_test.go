package evictions

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// savedLarge returns the number in the recorded state, 0 if there is none.
func savedLarge(j *job.Job) (int, error) {
	r, version, err := j.OpenSaved()
	if r == nil || err != nil {
		return 0, err
	}
	defer func() { _ = r.Close() }()
	state, err := io.ReadAll(r)
	if err != nil {
		return 0, err
	}
	n := int(binary.BigEndian.Uint32(state))
	if !bytes.Equal(state, rig.LargeState(n)) || version != 3 {
		return 0, job.Permanent(fmt.Errorf("restored %d bytes of version %d that were never saved", len(state), version))
	}
	return n, nil
}

// largeSteps is steps with a large state.
type largeSteps struct{ rig.Steps }

func (s *largeSteps) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	next, err := savedLarge(j)
	if err != nil {
		return nil, err
	}
	for ; next < s.N; next++ {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(s.Each):
		}
		s.Ran(j.ID, next)
		j.Report(rig.LargeProgress(next + 1))
	}
	return []byte("finished"), nil
}

// TestLargeStateIsHandedOver: an evicted job with a large state resumes on another
// worker without repeating a step, and the drain sends only the changed blocks. The second
// save has cut the group of chunks around the change into blocks of a chunk.
func TestLargeStateIsHandedOver(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &largeSteps{rig.Steps{N: 100, Each: 300 * time.Millisecond}}
		b.Put("large", "large", "")
		first := b.Start("vm_0", job.Kinds{"large": work})
		b.WaitFor("two checkpoints and more", 30*time.Second, func() bool {
			return b.Record("large").StateBlocks > 0 && work.Done("large") >= 75
		})
		b.Server.ResetCounts()
		id, err := b.Metadata.SimulateEviction("vm_0")
		if err != nil {
			t.Fatal(err)
		}
		b.WaitFor("release", 3*time.Second, func() bool { return first.Position().Facts.Has(lifecycle.WorkReleased) })
		if sent := b.Server.Counts()[storage.OpPutBlock]; sent != 2 {
			t.Errorf("blocks sent in the drain = %d, want the changed pages and the layout", sent)
		}
		if r := b.Record("large"); r.Status != checkpoint.Open || r.Interruptions != 1 || r.StateSize != rig.LargeSize || r.StateBlocks < 2 {
			t.Errorf("record = %s, %d interruptions, %d bytes in %d blocks, want open, 1, the state in several", r.Status, r.Interruptions,
				r.StateSize, r.StateBlocks)
		}
		if lines := first.Log.Find("job released"); len(lines) != 1 || lines[0]["state_bytes"] != float64(rig.LargeSize) {
			t.Errorf("log = %v, want a release with the size of the state", lines)
		}
		b.Metadata.Complete(id)
		first.Kill()
		b.Start("vm_1", job.Kinds{"large": work})
		b.WaitDone("large", time.Minute)
		if got := work.Repeated("large"); got != 0 {
			t.Errorf("steps repeated after a notice = %d, want 0", got)
		}
	})
}

// TestLargeDrainWithoutBandwidth: a large state that cannot be sent in time is
// left out. The record keeps the checkpoint before, and the log reports it.
func TestLargeDrainWithoutBandwidth(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &largeSteps{rig.Steps{N: 100, Each: 300 * time.Millisecond}}
		b.Put("large", "large", "")
		p := b.Start("vm_0", job.Kinds{"large": work})
		b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record("large").StateBlocks > 0 })
		saved := b.Record("large")
		time.Sleep(2 * time.Second) // so that there is more to save
		b.Server.SetBandwidth(storage.Bandwidth{Up: 256})
		asked := time.Now()
		p.Stop()
		if took := time.Since(asked); took > 10*time.Second+rig.HeartbeatWrite {
			t.Errorf("SIGTERM to exit = %s, want within the budget of 10s", took)
		}
		r := b.Record("large")
		if r.Status != checkpoint.Open || r.Interruptions != 1 || r.StateHash != saved.StateHash || r.StateBlocks != saved.StateBlocks {
			t.Errorf("record = %s, %d interruptions, state kept: %t, want open, 1, the checkpoint before", r.Status, r.Interruptions,
				r.StateHash == saved.StateHash)
		}
		if lines := p.Log.Find("job released"); len(lines) != 1 || lines[0]["state_left_out"] != true {
			t.Errorf("log = %v, want one release with state_left_out", lines)
		}
		if m := b.Server.Messages(b.Names.Queue); len(m) != 1 || !m[0].Visible {
			t.Errorf("messages = %+v, want one that is visible", m)
		}
		before := work.Done("large")
		b.Server.SetBandwidth(storage.Bandwidth{})
		b.Start("vm_1", job.Kinds{"large": work})
		b.WaitDone("large", time.Minute)
		if got := work.Repeated("large"); got == 0 || got > before {
			t.Errorf("steps repeated = %d of %d, want those since the checkpoint before", got, before)
		}
	})
}

// TestFailuresAfterLargeProgress: a large state is progress like any other, even if
// it is saved only after the handler failed.
func TestFailuresAfterLargeProgress(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var attempts []int
		h := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			attempts = append(attempts, j.Attempt)
			n, err := savedLarge(j)
			if err != nil {
				return nil, err
			}
			if n == 7 {
				return nil, nil
			}
			j.Report(rig.LargeProgress(n + 1))
			return nil, errors.New("no luck")
		})
		b.Put("a", "h", "")
		b.Start("vm_0", job.Kinds{"h": h})
		b.WaitDone("a", 10*time.Minute)
		if want := "[1 2 2 2 2 2 2 2]"; fmt.Sprint(attempts) != want {
			t.Errorf("attempts = %v, want %v: one failure in a row each time", attempts, want)
		}
	})
}

// TestLastFailureWithProgressInAnOutage: a state that was reported before the fifth
// failure is progress, even if an outage keeps it from being saved at once.
func TestLastFailureWithProgressInAnOutage(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var runs atomic.Int64
		h := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			run := runs.Add(1)
			if run > job.DefaultMaxFailures {
				return nil, nil
			}
			if run == job.DefaultMaxFailures {
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					return storage.Fault{DropRequest: c.Operation == storage.OpPutBlock}
				})
				time.AfterFunc(3*time.Minute, func() { b.Server.OnCall(nil) })
				j.Report(rig.LargeProgress(1))
			}
			return nil, errors.New("no luck")
		})
		b.Put("a", "h", "")
		b.Start("vm_0", job.Kinds{"h": h})
		b.WaitFor("the fifth failure", 10*time.Minute, func() bool {
			return runs.Load() == job.DefaultMaxFailures &&
				b.Record("a").Status == checkpoint.Open
		})
		b.WaitFor("an outcome", 10*time.Minute, func() bool { return b.Record("a").Status.Final() })
		if r := b.Record("a"); r.Status != checkpoint.Done || runs.Load() != job.DefaultMaxFailures+1 {
			t.Errorf("record after %d runs = %s %q, want done at the next attempt", runs.Load(), r.Status, r.Reason)
		}
	})
}

// TestFailedJobInADrain: a job that failed is released within the budget like any
// other, and its failure is recorded even if its state cannot be sent.
func TestFailedJobInADrain(t *testing.T) {
	small := job.Progress{State: rig.LargeState(1)[:job.MaxState/2]}
	for name, last := range map[string]job.Progress{"large": rig.LargeProgress(1), "in one piece": small} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				failing := make(chan struct{})
				h := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
					j.Report(last)
					close(failing)
					return nil, errors.New("no luck")
				})
				b.Put("a", "h", "")
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					if c.Container == b.Names.Records {
						return storage.Fault{Bandwidth: storage.Bandwidth{Up: 256}}
					}
					return storage.Fault{}
				})
				p := b.Start("vm_0", job.Kinds{"h": h})
				<-failing
				time.Sleep(time.Second)
				asked := time.Now()
				p.Stop()
				if took := time.Since(asked); took > 10*time.Second+rig.HeartbeatWrite {
					t.Errorf("SIGTERM to exit = %s, want within the budget of 10s", took)
				}
				if r := b.Record("a"); r.Status != checkpoint.Open || r.Failures != 1 || r.HasState() {
					t.Errorf("record = %s, %d failures, %d bytes of state, want open, 1, none", r.Status, r.Failures, r.StateSize)
				}
				if got := len(p.Log.Find("last state not saved in time; the job resumes from the checkpoint before")); got != 1 {
					t.Errorf("log lines about the state left out = %d, want 1", got)
				}
			})
		})
	}
}

// openLarge enqueues a job and runs it until a large state is saved, for the next
// worker to resume.
func openLarge(b *rig.Bed, id string) {
	b.T.Helper()
	b.Put(id, "h", "")
	p := b.Start("vm_0", job.Kinds{"h": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		j.Report(rig.LargeProgress(1))
		<-ctx.Done()
		return nil, ctx.Err()
	})})
	b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record(id).StateBlocks > 0 })
	p.Stop()
}

// TestSlowRestore: a handler that takes more than an hour to read the recorded state
// can report the next one before. Until then the record keeps the old state, and is
// written often enough to show that the job is alive.
func TestSlowRestore(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		openLarge(b, "a")
		h := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			r, _, err := j.OpenSaved()
			if err != nil {
				return nil, err
			}
			j.Report(job.Progress{State: []byte("next"), Text: "reading"})
			if !rig.SleepFor(ctx, 70*time.Minute) {
				return nil, ctx.Err()
			}
			state, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(state, rig.LargeState(1)) {
				return nil, job.Permanent(fmt.Errorf("read %d bytes, %w, want the state", len(state), err))
			}
			time.Sleep(time.Minute)
			return nil, nil
		})
		p := b.Start("vm_1", job.Kinds{"h": h})
		for range 69 {
			time.Sleep(time.Minute)
			if r := b.Record("a"); r.Status != checkpoint.Running || r.StateBlocks == 0 || time.Since(r.ModifiedAt) > 10*time.Minute {
				t.Fatalf("record = %s, %d blocks, written %s ago, want it running, with the restored state, and written in the last 10m", r.Status,
					r.StateBlocks, time.Since(r.ModifiedAt))
			}
		}
		if r := b.Record("a"); r.Text != "reading" {
			t.Errorf("record says %q, want what was reported", r.Text)
		}
		b.WaitFor("the next state", 2*time.Minute, func() bool { return b.Record("a").StateSize == 4 })
		b.WaitDone("a", 2*time.Minute)
		if n := len(p.Log.Find("job failed; it will be tried again")); n != 0 {
			t.Errorf("failures = %d, want none", n)
		}
	})
}

// TestRestoreInAnOutage: an outage while a handler reads the recorded state is no
// failure of the job.
func TestRestoreInAnOutage(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		openLarge(b, "a")
		work := &largeSteps{rig.Steps{N: 3, Each: time.Second}}
		b.Start("vm_1", job.Kinds{"h": work})
		var refused atomic.Bool
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpGetBlob && c.Range != nil && c.Range.Offset > 0 {
				refused.Store(true)
			}
			return storage.Fault{DropRequest: refused.Load()}
		})
		time.Sleep(5 * time.Minute)
		if !refused.Load() {
			t.Fatal("no read of the state was refused, so the test covers nothing")
		}
		b.Server.OnCall(nil)
		b.WaitDone("a", time.Minute)
		if r := b.Record("a"); r.Failures != 0 || r.Generation != 2 {
			t.Errorf("record = %d failures, generation %d, want 0, 2", r.Failures, r.Generation)
		}
	})
}

// TestFencedWhileReading: a handler that reads the state of a job that another
// worker has acquired gets a conflict, and its worker writes and deletes nothing.
func TestFencedWhileReading(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		openLarge(b, "a")
		reading, resume := make(chan struct{}), make(chan struct{})
		var readErr error
		h := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			r, _, err := j.OpenSaved()
			if err != nil {
				return nil, err
			}
			close(reading)
			<-resume
			_, readErr = io.ReadAll(r)
			return nil, readErr
		})
		p := b.Start("vm_1", job.Kinds{"h": h})
		<-reading
		found := b.Record("a")
		d := checkpoint.Delivery{ID: "a", Kind: "h", PayloadHash: found.PayloadHash, MessageID: found.MessageID}
		if _, err := b.Records.Acquire(t.Context(), d, found, "vm_2"); err != nil {
			t.Fatal(err)
		}
		taken := b.Record("a")
		close(resume)
		b.WaitFor("the delivery is dropped", 10*time.Second,
			func() bool { return len(p.Log.Find("message left alone; another worker may have its job")) == 1 })
		if !errors.As(readErr, new(*checkpoint.ConflictError)) || errors.Is(readErr, checkpoint.ErrDamaged) {
			t.Errorf("the handler's read = %v, want a conflict", readErr)
		}
		if r := b.Record("a"); r.ETag != taken.ETag || b.MessagesLeft() != 1 {
			t.Errorf("record = %+v with %d messages, want it as its new owner left it, and the message", r, b.MessagesLeft())
		}
	})
}

// TestAbandonedReaderIsReleased: a handler that neither returns nor closes the
// reader of its state does not keep its last report from being saved.
func TestAbandonedReaderIsReleased(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		openLarge(b, "a")
		resume := make(chan struct{})
		h := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			r, _, err := j.OpenSaved()
			if err != nil {
				return nil, err
			}
			j.Report(job.Progress{State: []byte("next")})
			<-resume
			if _, err := io.ReadAll(r); err == nil {
				return nil, errors.New("the state was readable after the job was released")
			}
			return nil, nil
		})
		p := b.Start("vm_1", job.Kinds{"h": h})
		time.Sleep(10 * time.Second)
		p.Stop()
		close(resume)
		if r := b.Record("a"); r.Status != checkpoint.Open || r.StateSize != 4 || r.StateBlocks != 0 {
			t.Errorf("record = %s, %d bytes of state in %d blocks, want open with the last report", r.Status, r.StateSize, r.StateBlocks)
		}
	})
}

// TestPanickingStream: a panic in a handler's Stream function affects neither the
// worker nor other jobs.
func TestPanickingStream(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		h := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { panic("no file") }})
			time.Sleep(20 * time.Second)
			return nil, job.Permanent(errors.New("no luck"))
		})
		b.Put("a", "h", "")
		b.Put("good", "echo", "1")
		p := b.Start("vm_0", job.Kinds{"h": h, "echo": rig.Echo})
		b.WaitDone("good", time.Minute)
		b.WaitFor("poison", time.Minute, func() bool { return b.Record("a").Status == checkpoint.Poison && b.MessagesLeft() == 0 })
		if got := len(p.Log.Find("checkpoint not saved; the one before stands")); got == 0 {
			t.Error("no log line about the checkpoint that was not saved")
		}
	})
}
