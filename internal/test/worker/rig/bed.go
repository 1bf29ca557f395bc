package rig

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/worker/intake"
)

// Bed holds emulated storage and metadata services in virtual time, and the clients
// with which a test fills and inspects them.
type Bed struct {
	T        *testing.T
	Server   *storage.Server
	Metadata *imds.Server
	Names    azure.Names
	Recorder *recorder.Recorder   // nil unless the test called addRecorder
	Retry    *policy.RetryOptions // nil for the worker's defaults
	Jitter   retry.Jitter         // of the worker's waits between tries
	Chunk    int                  // block size of large states, in bytes; 0 for the worker's default
	Sharded  bool                 // the queue of jobs has shards, and workers know of them

	CacheInputs string // the folder of the cache of inputs that workers fetch over their links; "" for none

	realTime bool     // outside a synctest bubble
	reads    sync.Map // the record that was read last, by job

	*deployment.Stores
}

// Run runs a test in a synctest bubble, that is in virtual time, with a testbed
// whose queues and containers exist.
func Run(t *testing.T, test func(t *testing.T, b *Bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newBed(t)) })
}

// RunInRealTime is Run with the real clock, for tests that virtual time cannot serve:
// there two readings of the clock are equal, and code takes no time.
func RunInRealTime(t *testing.T, test func(t *testing.T, b *Bed)) {
	t.Helper()
	b := newBed(t)
	b.realTime = true
	test(t, b)
}

func newBed(t *testing.T) *Bed {
	t.Helper()
	names, err := azure.NamesFor("test", "")
	if err != nil {
		t.Fatal(err)
	}
	b := &Bed{T: t, Server: storage.New(storage.Options{}), Metadata: imds.New(imds.Options{}), Names: names}
	client := b.Account(b.Server.Transport())
	for _, name := range []string{names.Records, names.Payloads, names.Workers, names.Control, names.Outputs} {
		if _, err := client.Container(name).Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	b.Stores = b.Connect(b.Server.Transport())
	for _, q := range b.AllQueues() {
		if err := q.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.Server.ResetCounts()
	return b
}

// Account returns a client of the account over a transport, which retries as the Bed says.
func (b *Bed) Account(transport policy.Transporter) *azure.Account {
	b.T.Helper()
	return b.WatchedAccount(transport, nil, nil)
}

// WatchedAccount is account, reports how calls end, and counts throttled calls in
// pressure.
func (b *Bed) WatchedAccount(transport policy.Transporter, pressure *intake.Pressure, onEnd func(outage.Call)) *azure.Account {
	b.T.Helper()
	account, err := azure.Connect(azure.AccountConfig{
		ConnectionString: b.Server.ConnectionString(), Transport: transport, Retry: b.Retry,
		OnEnd: onEnd,
		OnCall: func(c azure.Call) {
			if c.Throttled {
				pressure.Refused(c.Queue)
			}
		},
	})
	if err != nil {
		b.T.Fatal(err)
	}
	return account
}

// Connect returns clients for the queues and containers over a transport.
func (b *Bed) Connect(transport policy.Transporter) *deployment.Stores {
	return b.storesOf(b.Account(transport))
}

// storesOf returns the stores of an account.
func (b *Bed) storesOf(account *azure.Account) *deployment.Stores {
	s := deployment.StoresOf(account, b.Names)
	if b.Chunk > 0 {
		s.Records = s.Records.WithChunks(b.Chunk)
	}
	return s
}

// JobQueues returns the names of the queues of jobs.
func (b *Bed) JobQueues() []string { return queue.Names(b.Stores.JobQueues()) }

// UseShards makes so many queues of jobs.
func (b *Bed) UseShards(counts queue.ShardCounts) {
	b.T.Helper()
	b.Sharded = true
	for i := range counts.Taken {
		name := queue.ShardName(b.Names.Queue, i)
		if err := queue.New(b.Account(b.Server.Transport()).Queue(name), name).Create(b.T.Context()); err != nil {
			b.T.Fatal(err)
		}
	}
	if err := b.Jobs.Write(b.T.Context(), counts); err != nil {
		b.T.Fatal(err)
	}
}

// AddRecorder gives the testbed a recorder. It does not record the calls of clients
// that were made before.
func (b *Bed) AddRecorder() *recorder.Recorder {
	rec := recorder.New(b.Names, b.JobQueues)
	b.Recorder = rec
	b.Stores = b.Connect(b.Transport("test"))
	rec.Watch(b.Server)
	b.T.Cleanup(rec.LateRequests.Wait)
	return rec
}
