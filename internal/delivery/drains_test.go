package delivery_test

import (
	"context"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestNoPlaceInADrain: a job with a large state that gets no place among the last writes before the end of the drain is left like
// the jobs that had one.
func TestNoPlaceInADrain(t *testing.T) {
	const n = drain.Parallel + 3
	state := make([]byte, rig.SmallState+1) // a larger write keeps its place
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		<-ctx.Done()
		j.Report(job.Progress{State: state})
		return nil, context.Cause(ctx)
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		wait := b.beginMany(n)
		time.Sleep(2 * time.Second)
		b.down(func(storage.Call) bool { return true })
		begun := time.Now()
		b.drainNow(10 * time.Second)
		wait()
		if took := time.Since(begun); b.Counts() != (delivery.Counts{Late: n}) || b.counter.Of("ended left")["ended left"] != n ||
			took < 9*time.Second || took > 11*time.Second {
			t.Errorf("counts = %+v after %s, want %d jobs left at the end of the drain", b.Counts(), took, n)
		}
	})
}

// TestOutputsComeLastInADrain: if the places for last writes are taken, a job whose handler has outputs to send comes after a job with a
// state, since the size of outputs is not known.
func TestOutputsComeLastInADrain(t *testing.T) {
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		<-ctx.Done()
		switch j.ID {
		case "outputs":
			j.BeforeSave(func(context.Context) error { return nil })
			time.Sleep(time.Microsecond)
		case "state":
			time.Sleep(2 * time.Microsecond)
		}
		j.Report(job.Progress{State: []byte(j.ID)})
		return nil, context.Cause(ctx)
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		wait := b.beginMany(drain.Parallel)
		var waits []func() delivery.Result
		for _, id := range []string{"outputs", "state"} {
			b.Put(id, "k", "")
			waits = append(waits, b.begin(b.claim()))
		}
		time.Sleep(2 * time.Second)
		var mu sync.Mutex
		// Where answers are slow, there are more places.
		begun, written := time.Now(), map[string]time.Duration{} // by job
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			mu.Lock()
			defer mu.Unlock()
			id := path.Base(c.Blob)
			written[id] = time.Since(begun)
			if id == "job-0" {
				return storage.Fault{Before: 10 * time.Microsecond}
			}
			return storage.Fault{Before: 20 * time.Microsecond}
		})
		b.drainNow(10 * time.Second)
		wait()
		for _, wait := range waits {
			wait()
		}
		mu.Lock()
		defer mu.Unlock()
		state, outputs := written["state"], written["outputs"]
		if state < 10*time.Microsecond || outputs <= state || b.Counts().Released != drain.Parallel+2 {
			t.Errorf("the state was written after %s, the job with outputs after %s, %d released; want the state first, once a place is free", state,
				outputs, b.Counts().Released)
		}
	})
}
