package overview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// rig is a deployment on an emulator, seen by its operator and from inside.
type rig struct {
	server *storage.Server
	client *client.Client
	stores *deployment.Stores
	log    string // in each job's record
}

func setup(tb testing.TB) *rig {
	tb.Helper()
	r := &rig{server: storage.New(storage.Options{})}
	c, err := client.Open(client.Options{ConnectionString: r.server.ConnectionString(), Transport: r.server.Transport()})
	if err == nil {
		err = c.Create(context.Background())
	}
	if err != nil {
		tb.Fatal(err)
	}
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		tb.Fatal(err)
	}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: r.server.ConnectionString(), Transport: r.server.Transport()})
	if err != nil {
		tb.Fatal(err)
	}
	r.client, r.stores = c, deployment.StoresOf(account, names)
	return r
}

// fill makes that many jobs that run, and workers that run them. Every tenth job is
// done.
func (r *rig) fill(tb testing.TB, jobs, workers int) {
	tb.Helper()
	group, ctx := errgroup.WithContext(context.Background())
	group.SetLimit(8)
	for i := range jobs {
		group.Go(func() error {
			d := checkpoint.Delivery{ID: fmt.Sprintf("job-%06d", i), Kind: "render", PayloadHash: queue.Payload{}.Hash(), MessageID: fmt.Sprint(i)}
			claim, err := r.stores.Records.Create(ctx, d, fmt.Sprintf("vmss_%06d-0123abcd-0", i%max(workers, 1)))
			switch {
			case err != nil:
				return err
			case r.log != "":
				claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.Log = r.log; return f })
				err = claim.Touch(ctx, checkpoint.Snapshot{})
			}
			if err == nil && i%10 == 0 {
				return claim.Commit(ctx, []byte("{}"))
			}
			return err
		})
	}
	for i := range workers {
		group.Go(func() error {
			name := fmt.Sprintf("vmss_%06d-0123abcd-0", i)
			return r.stores.Workers.Write(ctx, presence.Presence{Worker: name, Machine: presence.Machine{VM: name}, State: "process",
				StartedAt: time.Now(), At: time.Now(),
				Program: "1.2.3", Jobs: []string{"x"}})
		})
	}
	if err := group.Wait(); err != nil {
		tb.Fatal(err)
	}
	r.server.ResetCounts()
}

// calls is how many calls the service answered since fill.
func (r *rig) calls() (n int64) {
	for _, count := range r.server.Counts() {
		n += count
	}
	return n
}

// TestReadCost: a screen of 5,001 jobs, which are two pages, and 500 workers costs 9
// calls with messages on all queues and 16 for heartbeats, and so does one of 10,000 jobs.
func TestReadCost(t *testing.T) {
	r := setup(t)
	r.server.SetFullPages()
	r.fill(t, 5001, 500)
	for _, q := range r.stores.AllQueues() {
		if err := q.Put(t.Context(), queue.Envelope{ID: "waits", Kind: "render", EnqueuedAt: time.Now()}, 0); err != nil {
			t.Fatal(err)
		}
	}
	r.server.ResetCounts()
	s, err := Read(t.Context(), r.client)
	if err != nil || len(s.Faults) > 0 {
		t.Fatalf("Read = %v, %v", err, s.Faults)
	}
	if n := r.calls(); n > 9+liveWorkers {
		t.Errorf("Read cost %d calls, want at most %d: %v", n, 9+liveWorkers, r.server.Counts())
	}
	if _, ok := s.Waits[s.Queues.Poison.Name]; !ok || len(s.Waits) != 2 {
		t.Errorf("waits read = %v, want those of the jobs and of the poison queue", s.Waits)
	}
	done, running := s.Jobs.ByStatus[client.StatusDone], s.Jobs.ByStatus[client.StatusRunning]
	if done != 501 || running != 4500 ||
		s.Jobs.DoneRecently != done || len(s.Jobs.Running) != running || s.Count(client.Alive) != 500 {
		t.Errorf("Read = %d done, %d running (%d listed), %d workers, want 501, 4500 and 500", done, running, len(s.Jobs.Running),
			s.Count(client.Alive))
	}
}

// TestReadEarly: while the records are listed, queues and workers are known.
func TestReadEarly(t *testing.T) {
	r := setup(t)
	r.fill(t, 3, 2)
	called := make(chan struct{})
	r.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == "ListBlobs" && c.Container == "spotworker-jobs" {
			<-called
		}
		return storage.Fault{}
	})
	jobs := 0
	s, err := ReadEach(t.Context(), r.client, func(client.Job) { jobs++ }, func(part Snapshot) {
		if !part.Has(PartQueues) || part.Count(client.Alive) != 2 || part.Has(PartJobs) || jobs > 0 {
			t.Errorf("before the jobs are read: %+v, %d jobs", part, jobs)
		}
		close(called)
	})
	if err != nil || jobs != 3 || s.Records() != 3 || s.Reading {
		t.Errorf("ReadEach = %v with %d jobs, %d in all, reading %t", err, jobs, s.Records(), s.Reading)
	}
}

// TestReadWithoutRole: parts that can be read are shown, and unreadable parts are
// named.
func TestReadWithoutRole(t *testing.T) {
	r := setup(t)
	r.fill(t, 1, 1)
	refuse := func(operations ...string) {
		r.server.OnCall(func(c storage.Call) storage.Fault {
			if slices.Contains(operations, c.Operation) {
				return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
			}
			return storage.Fault{}
		})
	}
	refuse("GetQueueMetadata")
	s, err := Read(t.Context(), r.client)
	if err != nil || len(s.Faults) != 1 || s.Count(client.Alive) != 1 {
		t.Fatalf("Read without the queues' role = %v, faults %v, want one fault and the worker", err, s.Faults)
	}
	if problem := strings.Join(s.Problems(), "\n"); !strings.Contains(problem, "Storage Queue Data") {
		t.Errorf("problems = %s, want the missing role", problem)
	}
	refuse("GetQueueMetadata", "ListBlobs")
	if _, err := Read(t.Context(), r.client); !errors.Is(err, client.ErrDenied) {
		t.Errorf("Read without any role = %v, want ErrDenied", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := Read(ctx, r.client); err == nil || err.Error() != "enough" {
		t.Errorf("Read after its end = %v, want the cause", err)
	}
}

// TestMissingParts: a deleted container of records is named with what is lost, a deleted queue too,
// and the rest is shown.
func TestMissingParts(t *testing.T) {
	r := setup(t)
	r.fill(t, 1, 1)
	if _, err := r.stores.Account.Container(r.stores.Names.Records).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.stores.Account.Queue(r.stores.Names.Poison).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	s, err := Read(t.Context(), r.client)
	got := strings.Join(s.Problems(), "\n")
	if err != nil || len(s.Faults) != 2 || !s.Has(PartQueues) || s.Count(client.Alive) != 1 {
		t.Errorf("Read = %v, faults %v, want two faults, and queues and worker", err, s.Faults)
	}
	if !strings.Contains(got, "the records of all jobs are lost") || !strings.Contains(got, "there is no queue spotworker-jobs-poison") {
		t.Errorf("problems = %s, want what is missing", got)
	}
}

// BenchmarkRead is the time of a screen with 10,000 jobs and 500 workers, without the
// network.
func BenchmarkRead(b *testing.B) {
	b.Run("without logs", func(b *testing.B) { benchmarkRead(b, "") })
	b.Run("with logs of a KiB in all records", func(b *testing.B) {
		log := joblog.New(1, "vmss_000001-0123abcd-0", joblog.MinSize, "")
		for n := range 100 {
			log.Add(joblog.Stdout, fmt.Appendf(nil, "epoch %d: loss 0.%06d, 1,024 samples/s", n, n*7919))
		}
		benchmarkRead(b, log.Tail())
	})
}

func benchmarkRead(b *testing.B, log string) {
	b.Helper()
	r := setup(b)
	r.log = log
	r.fill(b, 10_000, 500)
	for b.Loop() {
		if _, err := Read(b.Context(), r.client); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(r.calls())/float64(b.N), "calls/op")
}
