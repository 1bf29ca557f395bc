package delivery_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/telemetry/health"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// bench runs single deliveries in virtual time, without a worker around them: nothing polls, so
// that hours take milliseconds.
type bench struct {
	*rig.Bed
	*delivery.Runner
	config  delivery.Parts
	counter *rig.Counter
	log     *rig.Log

	ctx     context.Context // of the work
	cleanup context.Context
	stop    context.CancelCauseFunc
}

// noLosses are the losses of VMs that are never lost.
type noLosses struct{}

func (noLosses) Losses() checkpoint.Losses { return checkpoint.Losses{} }
func (noLosses) Unwarned(time.Time) bool   { return false }

// onBench runs a test with a bench whose worker has some kinds.
func onBench(t *testing.T, kinds job.Kinds, test func(t *testing.T, b *bench), change ...func(*bench)) {
	t.Helper()
	rig.Run(t, func(t *testing.T, bed *rig.Bed) {
		b := &bench{Bed: bed, counter: &rig.Counter{}, log: &rig.Log{}}
		b.config = delivery.Parts{
			Settings: &delivery.Settings{
				Stores: bed.Connect(bed.Server.Transport()), Kinds: kinds, LogSize: joblog.DefaultSize,
				Visibility: rig.DefaultVisibility, PayloadMemory: 1 << 20, Policy: checkpoint.DefaultPolicy(), Loops: &health.Loops{},
				Log: slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			},
			Place: func(string) *queue.Queue { return bed.Queue },
			Fleet: delivery.NewFleet(bed.Workers), Departure: drain.NewDeparture(), Drains: &drain.Set{}, Losses: noLosses{},
			Observe: b.counter.Observe, Started: time.Now(),
		}
		b.config.Stores.First = nil // no job is put before others
		for _, f := range change {
			f(b)
		}
		b.Runner = delivery.NewRunner(b.config)
		b.SetOwner("vm_0-boot-1")
		ctx, stop := context.WithCancelCause(context.Background())
		cleanup, cancel := drain.Outlive(ctx, drain.UntilEnd)
		b.ctx, b.cleanup, b.stop = ctx, cleanup, stop
		defer cancel()
		defer stop(nil)
		test(t, b)
	})
}

// claim claims the first visible message.
func (b *bench) claim() *queue.Lease {
	b.T.Helper()
	visibility, _ := b.ClaimVisibility()
	leases, err := b.config.Stores.Queue.Claim(b.T.Context(), 1, visibility)
	if err != nil || len(leases) != 1 {
		b.T.Fatalf("claim = %d messages, %v, want one", len(leases), err)
	}
	return leases[0]
}

// runOne claims a message and takes it to its end.
func (b *bench) runOne() delivery.Result {
	b.T.Helper()
	return b.Open(b.claim()).Run(b.ctx, b.cleanup)
}

// begin runs a message that was claimed. The returned function waits for its end.
func (b *bench) begin(lease *queue.Lease) (wait func() delivery.Result) { return b.run(b.Open(lease)) }

// run runs a delivery. The returned function waits for its end.
func (b *bench) run(d *delivery.Delivery) (wait func() delivery.Result) {
	ended := make(chan delivery.Result, 1)
	go func() { ended <- d.Run(b.ctx, b.cleanup) }()
	return func() delivery.Result { return <-ended }
}

// beginMany puts n jobs, job-0 and so on, and begins each. wait waits for all of them.
func (b *bench) beginMany(n int) (wait func()) {
	b.T.Helper()
	var waits []func() delivery.Result
	for i := range n {
		b.Put(fmt.Sprint("job-", i), "k", "")
		waits = append(waits, b.begin(b.claim()))
	}
	return func() {
		for _, wait := range waits {
			wait()
		}
	}
}

// drainNow stops all work, as an operator does.
func (b *bench) drainNow(budget time.Duration) {
	d := drain.New(job.Drained, context.Canceled, time.Now(), budget)
	b.config.Drains.Impose(d)
	b.stop(d)
}

// fail makes storage refuse the calls that are chosen, with a status.
func (b *bench) fail(status int, code string, chosen func(storage.Call) bool) (end func()) {
	b.Server.OnCall(func(c storage.Call) storage.Fault {
		if chosen(c) {
			return storage.Fault{Refuse: &storage.Error{Status: status, Code: code, Message: code}}
		}
		return storage.Fault{}
	})
	return func() { b.Server.OnCall(nil) }
}

// delay makes the calls that are chosen take that long.
func (b *bench) delay(by time.Duration, chosen func(storage.Call) bool) {
	b.Server.OnCall(func(c storage.Call) storage.Fault {
		if chosen(c) {
			return storage.Fault{Before: by}
		}
		return storage.Fault{}
	})
}

// down makes storage unavailable for the calls that are chosen.
func (b *bench) down(chosen func(storage.Call) bool) (end func()) {
	return b.fail(http.StatusServiceUnavailable, "ServerBusy", chosen)
}

// counted returns how often an operation was called.
func (b *bench) counted(operation string) int { return int(b.Server.Counts()[operation]) }

// on returns a choice of calls: an operation on a container.
func on(container string, operations ...string) func(storage.Call) bool {
	return func(c storage.Call) bool { return c.Container == container && slices.Contains(operations, c.Operation) }
}

// lines returns how many lines with that message the log has.
func (b *bench) lines(msg string) int { return len(b.log.Find(msg)) }

// former is a delivery of an earlier message of a job.
func former(e queue.Envelope) checkpoint.Delivery {
	return checkpoint.Delivery{ID: e.ID, Kind: e.Kind, PayloadHash: e.Work(), MessageID: "old"}
}

// putOpen enqueues a job that was released with a state.
func (b *bench) putOpen(id, kind string, s checkpoint.Snapshot) {
	b.T.Helper()
	e := queue.Envelope{ID: id, Kind: kind, Resume: true}
	c := b.Records.Fresh(former(e), "vm_9-boot-1")
	if err := c.Release(b.T.Context(), s); err != nil {
		b.T.Fatal(err)
	}
	b.put(e)
}

// put enqueues a message.
func (b *bench) put(e queue.Envelope) {
	b.T.Helper()
	if e.EnqueuedAt.IsZero() {
		e.EnqueuedAt = time.Now()
	}
	if err := b.Queue.Put(b.T.Context(), e, 0); err != nil {
		b.T.Fatal(err)
	}
}

// visible returns how many messages of jobs are visible.
func (b *bench) visible() (n int) {
	for _, m := range b.Server.Messages(b.Names.Queue) {
		if m.Visible {
			n++
		}
	}
	return n
}

// damage changes the first byte of the body of a job's record.
func (b *bench) damage(id string) {
	b.T.Helper()
	found, body, ok := b.Server.ReadBlob(b.Names.Records, b.BlobOf(id))
	if !ok || len(body) == 0 {
		b.T.Fatalf("job %s has no state", id)
	}
	metadata := map[string]*string{}
	for key, value := range found.Metadata {
		metadata[key] = new(value)
	}
	body = slices.Clone(body)
	body[0] ^= 1
	client := b.Account(b.Server.Transport()).Container(b.Names.Records).NewBlockBlobClient(found.Name)
	options := &blockblob.UploadOptions{Metadata: metadata}
	if _, err := client.Upload(b.T.Context(), streaming.NopCloser(bytes.NewReader(body)), options); err != nil {
		b.T.Fatal(err)
	}
}
