package rig

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/spotworker/spotworker/internal/jobfiles/inputs"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/internal/worker/sources"
	"github.com/spotworker/spotworker/job"
)

// Put enqueues a job with a JSON payload.
func (b *Bed) Put(id, kind, payload string) {
	b.T.Helper()
	b.PutOn(b.Jobs.For(id), id, kind, payload)
}

// PutOn enqueues a job with a JSON payload on a queue.
func (b *Bed) PutOn(q *queue.Queue, id, kind, payload string) {
	b.T.Helper()
	e := queue.Envelope{ID: id, Kind: kind, EnqueuedAt: time.Now()}
	if payload != "" {
		p, err := queue.JSONPayload([]byte(payload))
		if err != nil {
			b.T.Fatal(err)
		}
		e.Payload = p
	}
	if err := q.Put(b.T.Context(), e, 0); err != nil {
		b.T.Fatal(err)
	}
}

// PutText enqueues a message with any text, as a foreign tool may, and returns the
// message's id. The message expires after the given time, or after the service's
// default of 7 days.
func (b *Bed) PutText(text string, expires ...time.Duration) string {
	b.T.Helper()
	var options azqueue.EnqueueMessageOptions
	for _, after := range expires {
		options.TimeToLive = new(int32(after / time.Second))
	}
	reply, err := b.Account(b.Transport("test")).Queue(b.Names.Queue).EnqueueMessage(b.T.Context(), text, &options)
	if err != nil {
		b.T.Fatal(err)
	}
	return *reply.Messages[0].MessageID
}

// PutDue enqueues a job with a deadline after due from now; 0 is none.
func (b *Bed) PutDue(id, kind string, due, estimate time.Duration) {
	b.T.Helper()
	e := queue.Envelope{ID: id, Kind: kind, EnqueuedAt: time.Now(), Estimate: estimate}
	if due != 0 {
		e.Deadline = time.Now().Add(due)
	}
	if err := b.Queue.Put(b.T.Context(), e, 0); err != nil {
		b.T.Fatal(err)
	}
}

// PutLarge enqueues a job whose payload is in a blob.
func (b *Bed) PutLarge(id, kind string, payload []byte) {
	b.T.Helper()
	e, err := b.Payloads.Offload(b.T.Context(), queue.Envelope{ID: id, Kind: kind, EnqueuedAt: time.Now(),
		Payload: queue.BytesPayload(payload)})
	if err != nil {
		b.T.Fatal(err)
	}
	if err := b.Queue.Put(b.T.Context(), e, 0); err != nil {
		b.T.Fatal(err)
	}
}

// PutData stores a blob in the container "data".
func (b *Bed) PutData(name, text string) {
	b.T.Helper()
	container := b.Account(b.Transport("test")).Container("data")
	_, _ = container.Create(b.T.Context(), nil)
	if _, err := container.NewBlockBlobClient(name).Upload(b.T.Context(), streaming.NopCloser(strings.NewReader(text)), nil); err != nil {
		b.T.Fatal(err)
	}
}

// PutWithInputs enqueues a job that needs files.
func (b *Bed) PutWithInputs(id, kind string, all ...job.Input) {
	b.T.Helper()
	raw, err := json.Marshal(all)
	if err != nil {
		b.T.Fatal(err)
	}
	if err := b.Queue.Put(b.T.Context(), queue.Envelope{ID: id, Kind: kind, EnqueuedAt: time.Now(), Inputs: raw}, 0); err != nil {
		b.T.Fatal(err)
	}
}

// Fetcher returns what fetches inputs from an account into a cache.
func (b *Bed) Fetcher(folder string, limit int64, account *azure.Account) *inputs.Fetcher {
	fetcher := inputs.New(inputs.Config{
		Folder: folder, Limit: limit, Boot: "boot", Account: account.Container, Endpoint: account.Endpoint(), Private: []string{b.Names.Records},
	})
	b.T.Cleanup(func() { _ = fetcher.Close() })
	return fetcher
}

// canceller is an operator's tool whose requests arrive without faults.
func (b *Bed) canceller() *operate.Canceller {
	s := b.Connect(b.Transport(recorder.Operator))
	return &operate.Canceller{Records: s.Records, Control: s.Control, Name: recorder.Operator, Reason: "not needed"}
}

// Replay replays dead-lettered jobs as an operator does.
func (b *Bed) Replay(fromScratch bool, ids ...string) {
	b.T.Helper()
	s := b.Connect(b.Transport(recorder.Operator))
	tool := &operate.PoisonQueue{Poison: s.Poison, Queue: s.Queue, OnDemand: s.OnDemand, Queues: s.JobQueues, Payloads: s.Payloads,
		Records: s.Records,
		Name:    recorder.Operator}
	replayed := 0
	err := tool.Replay(b.T.Context(), operate.Selection{Names: ids}, fromScratch, func(o operate.Outcome) error {
		if o.Action == operate.Replayed {
			replayed++
		}
		return o.Err
	})
	if err != nil || replayed != len(ids) {
		b.T.Errorf("replay %v: %v, %d replayed", ids, err, replayed)
	}
}

// RemoveLists removes all lists of a job's outputs from storage.
func (b *Bed) RemoveLists(id string) {
	b.T.Helper()
	b.removeOutputs(func(name string) bool { return strings.Contains(name, "/"+id+"/manifest-") })
}

// RemoveOutput removes the blobs of one of a job's outputs from storage.
func (b *Bed) RemoveOutput(id, path string) {
	b.T.Helper()
	b.removeOutputs(func(name string) bool { return strings.Contains(name, "/"+id+"/") && strings.HasSuffix(name, "/"+path) })
}

func (b *Bed) removeOutputs(selects func(name string) bool) {
	b.T.Helper()
	container := b.Account(b.Server.Transport()).Container(b.Names.Outputs)
	for _, blob := range b.Server.Blobs(b.Names.Outputs) {
		if !selects(blob.Name) {
			continue
		}
		if _, err := container.NewBlobClient(blob.Name).Delete(b.T.Context(), nil); err != nil {
			b.T.Fatal(err)
		}
	}
}

// CancelJobs cancels jobs as an operator does.
func (b *Bed) CancelJobs(ids ...string) {
	b.T.Helper()
	err := b.canceller().Cancel(b.T.Context(), slices.Values(ids), func(o operate.CancelOutcome) error { return o.Err })
	if err != nil {
		b.T.Errorf("cancel %v: %v", ids, err)
	}
}

// Changeover makes a worker move jobs that may miss their deadlines.
func Changeover(d time.Duration) func(*worker.Config) {
	return func(c *worker.Config) { c.Changeover = d }
}

// MoveAfter makes a worker move jobs after that many interruptions.
func MoveAfter(n int) func(*worker.Config) { return func(c *worker.Config) { c.MoveAfter = n } }

// TakeOnDemand makes a worker take only from the on-demand queue, as on a VM of
// regular priority.
func TakeOnDemand(c *worker.Config) { c.TakeFrom = []sources.Choice{sources.OnDemand} }

// TakeFromBoth makes a worker take from the main and from the on-demand queue.
func TakeFromBoth(c *worker.Config) { c.TakeFrom = []sources.Choice{sources.Spot, sources.OnDemand} }

// DiscardLog leaves out the log of a worker that does thousands of jobs.
func DiscardLog(c *worker.Config) { c.Log = slog.New(slog.DiscardHandler) }
