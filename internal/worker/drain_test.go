package worker

import (
	"context"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// drainedAfter returns how long the worker's drain took, and how many states it
// left out.
func (p *process) drainedAfter() (took time.Duration, leftOut int) {
	p.b.t.Helper()
	lines := p.log.find("drained")
	if len(lines) != 1 {
		p.b.t.Fatalf("drains = %d, want 1", len(lines))
	}
	return time.Duration(lines[0]["since_notice"].(float64)), int(lines[0]["states_left_out"].(float64))
}

// swallowOnce lets the next call for which is holds get no answer for an hour,
// and returns a channel that is closed when it came.
func (b *bench) swallowOnce(is func(storage.Call) bool, arrives bool) <-chan struct{} {
	came := make(chan struct{})
	b.server.OnCall(func(c storage.Call) storage.Fault {
		select {
		case <-came:
			return storage.Fault{}
		default:
		}
		switch {
		case !is(c):
			return storage.Fault{}
		case arrives:
			close(came)
			return storage.Fault{After: time.Hour}
		default:
			close(came)
			return storage.Fault{Before: time.Hour}
		}
	})
	return came
}

// TestSwallowedInFlight: a call is swallowed just before the worker is told to end.
// It costs the drain no more than one that is swallowed during it.
func TestSwallowedInFlight(t *testing.T) {
	write := func(b *bench) func(storage.Call) bool {
		return func(c storage.Call) bool { return c.Operation == storage.OpPutBlob && c.Container == b.names.Records }
	}
	for _, row := range []struct {
		name   string
		n      int // steps of the job
		is     func(*bench) func(storage.Call) bool
		status checkpoint.Status
	}{
		{"a checkpoint", 60, write, checkpoint.Open},
		{"a commit", 4, write, checkpoint.Done},
		{"a renewal", 60, func(*bench) func(storage.Call) bool {
			return func(c storage.Call) bool { return c.Operation == storage.OpUpdateMessage }
		}, checkpoint.Open},
		{"the deletion of a message", 4, func(*bench) func(storage.Call) bool {
			return func(c storage.Call) bool { return c.Operation == storage.OpDeleteMessage }
		}, checkpoint.Done},
	} {
		for _, arrives := range []bool{false, true} {
			t.Run(row.name+map[bool]string{false: " that does not arrive", true: " that arrives"}[arrives], func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bench) {
					work := &steps{n: row.n, each: time.Second}
					b.put("a", "steps", "")
					p := b.start("vm_0", job.Kinds{"steps": work}, func(c *Config) { c.Metadata = nil })
					b.waitFor("work", 10*time.Second, func() bool { return work.done("a") > 0 })
					<-b.swallowOnce(row.is(b), arrives)
					time.Sleep(300 * time.Millisecond)
					p.stop()
					took, leftOut := p.drainedAfter()
					if took > swallowedDrain || leftOut != 0 {
						t.Errorf("drained after %s with %d states left out, want at most %s and none", took, leftOut, swallowedDrain)
					}
					r := b.record("a")
					if r.Status != row.status || row.status == checkpoint.Open && r.StateSize == 0 {
						t.Errorf("record = %s with %d bytes of state, want %s", r.Status, r.StateSize, row.status)
					}
				})
			})
		}
	}
}

// TestStateThatArrivedIsNotLeftOut: the write of a large state takes effect and is
// never answered. The record shows that, and the log does not say otherwise.
func TestStateThatArrivedIsNotLeftOut(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		state := make([]byte, 1<<20) // not small: its one try has all the time there is
		b.put("a", "waits", "")
		p := b.start("vm_0", job.Kinds{"waits": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: []byte("first")})
			<-ctx.Done()
			j.Report(job.Progress{State: state})
			return nil, context.Cause(ctx)
		})})
		b.waitFor("a checkpoint", 20*time.Second, func() bool { return b.record("a").HasState() })
		b.swallowOnce(func(c storage.Call) bool { return c.Operation == storage.OpPutBlob && c.Container == b.names.Records }, true)
		p.stop()
		if _, leftOut := p.drainedAfter(); leftOut != 0 || len(p.log.find("state left out; the checkpoint before stands")) != 0 {
			t.Errorf("states left out = %d, want none, and no line about one", leftOut)
		}
		if r := b.record("a"); r.Status != checkpoint.Open || r.StateSize != int64(len(state)) || r.Interruptions != 1 {
			t.Errorf("record = %s, %d bytes of state, %d interruptions, want open, %d, 1", r.Status, r.StateSize, r.Interruptions, len(state))
		}
	})
}
