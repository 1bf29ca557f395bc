package delivery_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// putCrashed enqueues a job whose last workers died, each soon after its claim. They had run for a while if they were steady.
func (b *bench) putCrashed(id string, exits int, steady bool) {
	b.T.Helper()
	e := queue.Envelope{ID: id, Kind: "k", Resume: true}
	b.put(e)
	var messageID string
	seen, err := b.Queue.Peek(b.T.Context(), 32)
	if err != nil {
		b.T.Fatal(err)
	}
	for _, m := range seen {
		if found, err := queue.Decode(m.Text); err == nil && found.ID == id {
			messageID = m.ID
		}
	}
	if messageID == "" {
		b.T.Fatalf("no message of %s", id)
	}
	d := checkpoint.Delivery{ID: id, Kind: "k", PayloadHash: e.Work(), MessageID: messageID, Steady: steady}
	for range exits {
		var err error
		if found := b.Record(id); found.Status == "" {
			_, err = b.Records.Create(b.T.Context(), d, "vm_9-boot-1")
		} else {
			_, err = b.Records.Acquire(b.T.Context(), d, found, "vm_9-boot-1")
		}
		if err != nil {
			b.T.Fatal(err)
		}
	}
}

// keepAlive writes a heartbeat every 15 s.
func (b *bench) keepAlive(p presence.Presence) (end func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for b.Workers.Write(context.Background(), p) == nil {
			select {
			case <-stop:
				return
			case <-time.After(15 * time.Second):
			}
		}
	}()
	time.Sleep(time.Second)
	return func() { close(stop); <-ended }
}

// TestQuarantineOfOne: a worker runs one job at a time whose last workers died, and puts the others back; a job that is not
// in quarantine runs beside it.
func TestQuarantineOfOne(t *testing.T) {
	run := job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) { return nil, sleeps(ctx, time.Minute) })
	onBench(t, job.Kinds{"k": run}, func(t *testing.T, b *bench) {
		time.Sleep(2 * rig.SteadyFor)
		var waits []func() delivery.Result
		for i, exits := range []int{rig.QuarantineAfter, rig.QuarantineAfter, rig.QuarantineAfter - 1} {
			b.putCrashed(fmt.Sprint("job-", i), exits, true)
			waits = append(waits, b.begin(b.claim()))
			time.Sleep(2 * time.Second)
		}
		if got := b.Running(); len(got) != 2 || got[0].ID != "job-0" || got[1].ID != "job-2" {
			t.Errorf("running = %+v, want one job in quarantine, and the other", got)
		}
		if got := waits[1](); got != delivery.NotRun {
			t.Errorf("the second job in quarantine: %d, want it put back for a while", got)
		}
		waits[0]()
		waits[2]()
		if took, _ := b.untilEnd(time.Hour, time.Second); took > 3*time.Minute || b.Record("job-1").Status != checkpoint.Done {
			t.Errorf("the second job is %s after %s, want it done once the place is free", b.Record("job-1").Status, took)
		}
	})
}

// TestCrashesInARow: ten exits of steady workers end a job. After five early ones a worker that has just started leaves the
// job to others until it has run for a minute.
func TestCrashesInARow(t *testing.T) {
	onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
		b.putCrashed("fifty", 50, false)
		b.runOne()
		if r := b.Record("fifty"); r.Status != checkpoint.Poison || !strings.Contains(r.Reason, "50 unclean exits in a row before") {
			t.Errorf("record after 50 early exits = %s %q, want poison at once", r.Status, r.Reason)
		}
		b.putCrashed("early", 5, false)
		if b.runOne(); b.Record("early").Generation != 5 || b.lines(
			"job left to a worker that has run for longer: the last workers died soon after they started it") != 1 {
			t.Errorf("record of generation %d, want the job left to an older worker", b.Record("early").Generation)
		}
		took, deliveries := b.untilEnd(time.Hour, time.Second)
		if r := b.Record("early"); took < 59*time.Second || took > 80*time.Second || deliveries > 12 || b.lines(
			"job left to a worker that has run for longer: the last workers died soon after they started it") != 1 || r.Status != checkpoint.Done {
			t.Errorf("record = %s after %s and %d deliveries, want it done by this worker after a minute", r.Status, took, deliveries)
		}
		b.putCrashed("nine", rig.MaxChargedExits-1, true)
		b.runOne()
		b.putCrashed("ten", rig.MaxChargedExits, true)
		b.runOne()
		if b.Record("nine").Status != checkpoint.Done || b.Record("ten").Status != checkpoint.Poison || len(b.PoisonMessages()) != 2 ||
			!strings.Contains(b.Record("ten").Reason, "10 unclean exits in a row without progress") {
			t.Errorf("records = %s, %s %q; want done, poison", b.Record("nine").Status, b.Record("ten").Status, b.Record("ten").Reason)
		}
		if b.counter.Of("failed k, exits")["failed k, exits"] != 2 {
			t.Error("the observer did not get both failures by exits")
		}
	})
}
