package delivery_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// announce tells the Runner that jobs may have been cancelled.
func (b *bench) announce(ids ...string) {
	d := &control.Document{}
	d.AddCancels(ids, time.Now())
	b.Follow(d)
}

// TestFollowUpAfterACancel: a handler that has not been stopped yet puts no follow-up job once its
// own job is cancelled, although the worker could not read that.
func TestFollowUpAfterACancel(t *testing.T) {
	asked := make(chan struct{})
	var failed error
	work := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		<-asked
		_, failed = j.Put(ctx, job.FollowUp{Name: "x", Kind: "puts"})
		return nil, failed
	})
	onBench(t, job.Kinds{"puts": work}, func(t *testing.T, b *bench) {
		asked = make(chan struct{}) // of this bubble
		b.Put("a", "puts", "")
		wait := b.begin(b.claim())
		time.Sleep(30 * time.Second)
		if _, err := b.Records.Cancel(t.Context(), "a", "me", "not needed", false); err != nil {
			t.Fatal(err)
		}
		end := b.down(on(b.Names.Records, storage.OpGetBlobProperties))
		b.announce("a")
		b.WaitFor("a read that fails", time.Minute, func() bool {
			return b.lines("cannot read whether the job was cancelled; trying again") == 1
		})
		end()
		close(asked)
		if wait(); failed == nil || b.MessagesLeft() != 0 {
			t.Errorf("put of the follow-up job = %v, %d messages; want it refused, and none", failed, b.MessagesLeft())
		}
	})
}

// TestStopBeforeTheStart: a job whose record, state or list of outputs cannot be read is released when the worker stops, and a call that
// ends because of the stop is not announced as a repeated call.
func TestStopBeforeTheStart(t *testing.T) {
	for name, row := range map[string]struct {
		hangs      func(b *bench) func(c storage.Call) bool
		generation int
	}{
		"the record":  {func(b *bench) func(storage.Call) bool { return on(b.Names.Records, storage.OpGetBlobProperties) }, 1},
		"the state":   {func(b *bench) func(storage.Call) bool { return on(b.Names.Records, storage.OpGetBlob) }, 2},
		"the outputs": {func(b *bench) func(storage.Call) bool { return on(b.Names.Outputs, storage.OpGetBlob) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(ctx context.Context, j *job.Job) ([]byte, error) {
				j.Report(job.Progress{State: []byte("s")})
				return nil, errors.Join(j.SendOutput(ctx, "x", strings.NewReader("x")), job.Interrupted(errors.New("wait")))
			}
			onBench(t, job.Kinds{"k": job.WithLimits(job.HandlerFunc(run), job.Limits{Backoff: time.Second})}, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				b.runOne()
				time.Sleep(2 * time.Second)
				lease := b.claim()
				b.delay(time.Hour, row.hangs(b))
				wait := b.begin(lease)
				time.Sleep(5 * time.Second)
				b.drainNow(10 * time.Second)
				wait()
				b.Server.OnCall(nil)
				r := b.Record("a")
				if r.Status != checkpoint.Open || r.Generation != row.generation || !r.HasState() || r.Outputs.Files != 1 || b.visible() != 1 {
					t.Errorf("record = %s of generation %d, state %t, %d outputs, %d visible messages; want it open, %d, as before, one", r.Status,
						r.Generation, r.HasState(), r.Outputs.Files, b.visible(), row.generation)
				}
				if n := b.counter.Of("ended released")["ended released"]; n != 2 || b.counter.WithPrefix("started") != 1 ||
					b.lines("storage is unavailable; trying again") != 0 {
					t.Errorf("%d releases, %d starts, %d lines about a repeat; want 2, one, none", n, b.counter.WithPrefix("started"),
						b.lines("storage is unavailable; trying again"))
				}
			})
		})
	}
}

// TestAcquireThatIsRefused: a job whose record storage permanently refuses to change, or to read, is requeued.
func TestAcquireThatIsRefused(t *testing.T) {
	for name, operations := range map[string][]string{
		"writes": {storage.OpSetBlobMetadata, storage.OpPutBlob}, "reads": {storage.OpGetBlobProperties},
	} {
		t.Run(name, func(t *testing.T) { acquireRefused(t, operations) })
	}
}

func acquireRefused(t *testing.T, operations []string) {
	t.Helper()
	onBench(t, job.Kinds{"echo": rig.Echo}, func(t *testing.T, b *bench) {
		b.putOpen("a", "echo", checkpoint.Snapshot{State: []byte("s")})
		end := b.fail(409, "BlobImmutableDueToPolicy", on(b.Names.Records, operations...))
		if got := b.runOne(); got != delivery.NotRun {
			t.Errorf("result = %d, want %d: requeued", got, delivery.NotRun)
		}
		end()
		if r := b.Record("a"); r.Status != checkpoint.Open || b.counter.WithPrefix("started") != 0 ||
			b.counter.Of("refused BlobImmutableDueToPolicy")["refused BlobImmutableDueToPolicy"] != 1 {
			t.Errorf("record = %s, %d starts; want it open, not started, and the refusal counted", r.Status, b.counter.WithPrefix("started"))
		}
	})
}
