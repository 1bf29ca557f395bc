//go:build integration

package product

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/guard"
	"github.com/spotworker/spotworker/internal/test/integration/azurite"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// patience bounds every wait: Azurite on a busy machine is slow, not stuck.
const patience = 2 * time.Minute

// TestOnAzurite takes jobs of every sort through Azurite: short ones, an evicted and
// resumed job, a job with a large state, a duplicate, a failing one, a poison message and
// a foreign one.
func TestOnAzurite(t *testing.T) {
	s := open(t, azurite.Start(t))
	metadata := imds.New(imds.Options{})
	service := httptest.NewServer(metadata.Handler())
	t.Cleanup(service.Close)

	large := &largeState{size: 5<<20 + 12345}
	kinds := job.Kinds{
		"echo":  job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) { return j.Payload, nil }),
		"count": job.HandlerFunc(count), "large": large,
		"permanent": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
			return nil, job.Permanent(errors.New("cannot be done: größer als\nerlaubt"))
		}),
	}
	put(t, s, "large", "large", "1")
	put(t, s, "count", "count", "1")
	for _, id := range []string{"a", "b", "c"} {
		put(t, s, id, "echo", `{"id":"`+id+`"}`)
	}
	put(t, s, "a", "echo", `{"id":"a"}`) // a duplicate
	put(t, s, "permanent", "permanent", "1")
	if _, err := s.Account.Queue(s.Names.Queue).EnqueueMessage(t.Context(), "what is this?", nil); err != nil {
		t.Fatal(err)
	}

	stop := start(t, s, metadata, service.URL, "vm_0", kinds)
	await(t, "checkpoints of both long jobs", func() bool {
		return record(t, s, "count").HasState() && record(t, s, "large").StateBlocks > 0
	})
	if _, err := metadata.SimulateEviction("vm_0"); err != nil {
		t.Fatal(err)
	}
	await(t, "both long jobs released", func() bool {
		return record(t, s, "count").Status == checkpoint.Open && record(t, s, "large").Status == checkpoint.Open
	})
	stop()
	large.finish()
	start(t, s, metadata, service.URL, "vm_1", kinds)

	for _, id := range []string{"a", "b", "c", "count", "large"} {
		await(t, "job "+id+" done", func() bool { return record(t, s, id).Status == checkpoint.Done })
	}
	for _, id := range []string{"count", "large"} {
		if r := record(t, s, id); r.Interruptions != 1 || r.Generation < 2 || r.Failures != 0 {
			t.Errorf("job %s = %d interruptions, generation %d, %d failures, want 1, 2 or more, 0", id, r.Interruptions, r.Generation, r.Failures)
		}
	}
	if got, err := s.Records.Result(t.Context(), "large"); err != nil || string(got) != "resumed" {
		t.Errorf("result of the job with a large state = %q, %v, want that it was resumed from it", got, err)
	}
	await(t, "poison messages", func() bool { n, err := s.Poison.Depth(t.Context()); return err == nil && n == 2 })
	if r := record(t, s, "permanent"); r.Status != checkpoint.Poison || r.Reason != "cannot be done: größer als\nerlaubt" {
		t.Errorf("failed job = %s, %q, want poison with its reason", r.Status, r.Reason)
	}
	await(t, "empty queue", func() bool { n, err := s.Queue.Depth(t.Context()); return err == nil && n == 0 })
}

// count is a job of 100 steps of 50 ms. Its first run waits at step 50 for its stop.
func count(ctx context.Context, j *job.Job) ([]byte, error) {
	const halt = 50
	next := uint32(0)
	state, _, resumed := j.Saved()
	if resumed {
		next = binary.BigEndian.Uint32(state)
	}
	for ; next < 100; next++ {
		if next == halt && !resumed {
			<-ctx.Done()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
		j.Report(job.Progress{State: binary.BigEndian.AppendUint32(nil, next+1), Fraction: float64(next+1) / 100})
	}
	return []byte("counted"), nil
}

// largeState reports a state of some MiB and waits until it may finish. When it
// is resumed it checks that it gets the same bytes back.
type largeState struct {
	size int
	mu   sync.Mutex
	done bool
}

func (l *largeState) finish() { l.mu.Lock(); defer l.mu.Unlock(); l.done = true }

func (l *largeState) finished() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.done }

func (l *largeState) state() []byte {
	state := make([]byte, l.size)
	for i := range state {
		state[i] = byte(i / 1000)
	}
	return state
}

func (l *largeState) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	saved, _, err := j.OpenSaved()
	if err != nil {
		return nil, err
	}
	if saved != nil {
		got, err := io.ReadAll(saved)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(got, l.state()) {
			return nil, job.Permanent(errors.New("restored state is not the one that was saved"))
		}
		if l.finished() {
			return []byte("resumed"), nil
		}
	}
	j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l.state())), nil }})
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func open(t *testing.T, connection string) *deployment.Stores {
	t.Helper()
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: connection, Concurrency: 32})
	if err != nil {
		t.Fatal(err)
	}
	names, err := azure.NamesFor("product", "")
	if err != nil {
		t.Fatal(err)
	}
	s := deployment.StoresOf(account, names)
	for _, q := range []*queue.Queue{s.Queue, s.Poison} {
		if err := q.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{names.Records, names.Payloads, names.Workers} {
		if _, err := account.Container(name).Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// start runs a worker as a VM until stop is called, or the test is over.
func start(t *testing.T, s *deployment.Stores, metadata *imds.Server, url, vm string, kinds job.Kinds) (stop func()) {
	t.Helper()
	metadata.AddVM(imds.VM{Name: vm, Priority: "Spot"})
	client, err := preempt.NewClient(guard.Loopback(t, url+"/vms/"+vm))
	if err != nil {
		t.Fatal(err)
	}
	policy := checkpoint.DefaultPolicy()
	policy.Interval = time.Second
	own := *s
	own.Jobs, own.OnDemand, own.Control, own.Logs, own.Outputs = nil, nil, nil, nil, nil // the test creates none of these
	w, err := worker.New(worker.Config{
		Settings: delivery.Settings{
			Stores: &own, Kinds: kinds, Policy: policy, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		},
		Concurrency: 8, Metadata: client, Host: vm,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("worker %s = %v, want nil", vm, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func put(t *testing.T, s *deployment.Stores, id, kind, payload string) {
	t.Helper()
	p, err := queue.JSONPayload([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Queue.Put(t.Context(), queue.Envelope{ID: id, Kind: kind, Payload: p, EnqueuedAt: time.Now()}, 0); err != nil {
		t.Fatal(err)
	}
}

func record(t *testing.T, s *deployment.Stores, id string) checkpoint.Record {
	t.Helper()
	r, err := s.Records.Read(t.Context(), id)
	if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
		t.Fatal(err)
	}
	return r
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}
