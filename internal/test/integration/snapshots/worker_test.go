//go:build integration && linux

package snapshots

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// startWorker runs a worker of this machine until stop is called.
func (m *machine) startWorker(server *storage.Server, k program.Kind) (stop func()) {
	m.t.Helper()
	return m.startWorkerOver(server, server.Transport(), k, func(*worker.Config) {})
}

// startWorkerOver is startWorker with a transport to the server and a changed configuration.
func (m *machine) startWorkerOver(server *storage.Server, transport policy.Transporter, k program.Kind,
	change func(*worker.Config)) (stop func()) {
	m.t.Helper()
	kinds := []program.Kind{k}
	if k.Machine.Kernel == "" {
		if err := program.CheckSnapshots(m.t.Context(), kinds, m.scratch); err != nil {
			m.t.Fatal(err)
		}
	}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: transport})
	if err != nil {
		m.t.Fatal(err)
	}
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		m.t.Fatal(err)
	}
	c := worker.Config{
		Settings: delivery.Settings{
			Stores: deployment.StoresOf(account, names), Log: m.logger(),
			Kinds: job.Kinds{k.Name: program.NewHandler(kinds[0], m.scratch, nil, nil, nil, m.logger())},
		},
		Concurrency: 1, Host: m.t.Name(), Program: "test", DrainBudget: time.Minute,
	}
	change(&c)
	w, err := worker.New(c)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			m.t.Errorf("worker: %v; log:\n%s", err, m.log)
		}
	}
}

// TestNoBandwidth hands a job over whose last snapshot cannot be sent in the budget: the snapshot
// before stands, and the program continues from it with the right result.
func TestNoBandwidth(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	k := pythonKind(t)
	server, c := storageWithJob(t, k)
	m := newMachine(t, nil)
	stop := m.startWorkerOver(server, server.Transport(), k, func(c *worker.Config) {
		c.DrainBudget, c.Policy = 16*time.Second, checkpoint.Policy{Interval: 200 * time.Millisecond}
	})
	until(t, m, "a snapshot", func() bool {
		j, err := c.Get(t.Context(), "job-1")
		return err == nil && j.StateSize > 0
	})
	server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == storage.OpPutBlob || c.Operation == storage.OpPutBlock {
			return storage.Fault{Before: time.Minute}
		}
		return storage.Fault{}
	})
	stop()
	server.OnCall(nil)
	released, err := c.Get(t.Context(), "job-1")
	if err != nil || released.Status != client.StatusOpen || released.StateVersion != 16 || released.Interruptions != 1 {
		t.Errorf("the released job = %+v, %v, want it open with a snapshot; log:\n%s", released, err, m.log)
	}
	m = newMachine(t, nil)
	stop = m.startWorker(server, k)
	m.untilRuns(true)
	m.letFinish()
	until(t, m, "the job is done", func() bool {
		j, err := c.Get(t.Context(), "job-1")
		return err == nil && j.Status == client.StatusDone
	})
	stop()
	if result, err := c.Result(t.Context(), "job-1"); err != nil || string(result) != evicted(t, k, 0) {
		t.Errorf("result = %q, %v", result, err)
	}
}

// TestHandedOverByWorkers moves an unchanged program through three workers, by its record.
func TestHandedOverByWorkers(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	k := pythonKind(t)
	server, c := storageWithJob(t, k)
	for i := range 3 {
		m := newMachine(t, nil)
		stop := m.startWorker(server, k)
		m.untilRuns(i > 0)
		if i < 2 {
			stop()
			continue
		}
		m.letFinish()
		until(t, m, "the job is done", func() bool {
			j, err := c.Get(t.Context(), "job-1")
			return err == nil && j.Status == client.StatusDone
		})
		stop()
	}
	j, err := c.Get(t.Context(), "job-1")
	if err != nil || j.Interruptions != 2 {
		t.Errorf("the job = %+v, %v, want two interruptions", j, err)
	}
	if result, err := c.Result(t.Context(), "job-1"); err != nil || string(result) != evicted(t, k, 0) {
		t.Errorf("result = %q, %v", result, err)
	}
}

// storageWithJob returns a storage account with job-1 on its queue.
func storageWithJob(t *testing.T, k program.Kind) (*storage.Server, *client.Client) {
	t.Helper()
	server := storage.New(storage.Options{})
	c, err := client.Open(client.Options{ConnectionString: server.ConnectionString(), Transport: server.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), client.Spec{ID: "job-1", Kind: k.Name, Payload: "payload"}); err != nil {
		t.Fatal(err)
	}
	return server, c
}

// TestLeftToAnotherMachine: a worker on another kernel leaves the job alone.
func TestLeftToAnotherMachine(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	k := pythonKind(t)
	server, c := storageWithJob(t, k)
	m := newMachine(t, nil)
	stop := m.startWorker(server, k)
	m.untilRuns(false)
	stop()
	before, err := c.Get(t.Context(), "job-1")
	if err != nil || !strings.Contains(before.StateNeeds, "; kernel=") {
		t.Fatalf("the job = %+v, %v, want the needs of its state", before, err)
	}
	m = newMachine(t, nil)
	kinds := []program.Kind{k}
	if err := program.CheckSnapshots(t.Context(), kinds, m.scratch); err != nil {
		t.Fatal(err)
	}
	kinds[0].Machine.Kernel += "-other"
	stop = m.startWorkerOver(server, server.Transport(), kinds[0], func(*worker.Config) {})
	until(t, m, "the difference is logged", func() bool {
		log := m.log.String()
		return strings.Contains(log, "job waits for a worker that meets the needs") && strings.Contains(log, "the kernel was")
	})
	stop()
	after, err := c.Get(t.Context(), "job-1")
	if err != nil || after.Deliveries != before.Deliveries || !after.UpdatedAt.Equal(before.UpdatedAt) {
		t.Errorf("the job = %+v, %v, want it unchanged", after, err)
	}
}

// until waits until something holds.
func until(t *testing.T, m *machine, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s; log:\n%s", what, patience, m.log)
		}
	}
}
