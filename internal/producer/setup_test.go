package producer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a storage account with a deployment's queues and containers, and a
// producer that records its reports.
type rig struct {
	*Producer
	server *storage.Server
	stores *deployment.Stores

	confirmed []string
	skipped   []string // with the status found
	failed    []string
}

func setup(t *testing.T) *rig {
	t.Helper()
	b := setupBare(t)
	if err := b.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.server.ResetCounts()
	return b
}

// setupBare is setup before anything was created.
func setupBare(t *testing.T) *rig { return setupWith(t, storage.Options{}) }

func setupWith(t *testing.T, o storage.Options) *rig {
	t.Helper()
	b := &rig{server: storage.New(o)}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: b.server.ConnectionString(), Transport: b.server.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	names, err := azure.NamesFor("test", "")
	if err != nil {
		t.Fatal(err)
	}
	b.stores = deployment.StoresOf(account, names)
	b.Producer = &Producer{
		Queue: b.stores.Queue, Payloads: b.stores.Payloads, Records: b.stores.Records, Name: "producer@desk",
		Confirmed: func(j Job, _ checkpoint.Status) error { b.confirmed = append(b.confirmed, j.ID()); return nil },
		Skipped: func(j Job, found checkpoint.Status) error {
			b.skipped = append(b.skipped, j.ID()+" "+string(found))
			return nil
		},
		Failed: func(bad *JobError) error { b.failed = append(b.failed, bad.Error()); return nil },
	}
	return b
}

func (b *rig) create(ctx context.Context) error {
	containers := map[string]*container.Client{}
	for _, name := range []string{b.stores.Names.Records, b.stores.Names.Payloads, b.stores.Names.Workers} {
		containers[name] = b.stores.Account.Container(name)
	}
	return Create(ctx, b.stores.AllQueues(), containers)
}

// putBlob stores a blob in a container, which it creates if necessary.
func (b *rig) putBlob(t *testing.T, containerName, name string, data []byte, metadata map[string]*string) {
	t.Helper()
	client := b.stores.Account.Container(containerName)
	if !slices.Contains(b.server.Containers(), containerName) {
		if _, err := client.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	options := &uploadOptions{Metadata: metadata}
	if _, err := client.NewBlockBlobClient(name).Upload(t.Context(), streaming.NopCloser(bytes.NewReader(data)), options); err != nil {
		t.Fatalf("put blob %s: %v", name, err)
	}
}

// envelopes decodes what lies on the queue, by job id.
func (b *rig) envelopes(t *testing.T) map[string]queue.Envelope {
	t.Helper()
	all := map[string]queue.Envelope{}
	for _, m := range b.server.Messages(b.stores.Names.Queue) {
		e, err := queue.Decode(m.Text)
		if err != nil {
			t.Fatalf("message %q: %v", m.Text, err)
		}
		if !m.Expires.IsZero() {
			t.Errorf("message of job %s expires at %v, want never", e.ID, m.Expires)
		}
		all[e.ID] = e
	}
	return all
}

// numbered is the input of n lines with the ids job-1 … job-n.
func numbered(n int) io.Reader {
	var out strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&out, `{"id":"job-%d","kind":"k","payload":{"n":%d}}`+"\n", i, i)
	}
	return strings.NewReader(out.String())
}

// one is a source of one job.
func one(t *testing.T, s Spec) iter.Seq2[Spec, error] {
	t.Helper()
	s.Where = "the job"
	return func(yield func(Spec, error) bool) { yield(s, nil) }
}

// jobs yields the jobs of a source, as a run makes them.
func jobs(specs iter.Seq2[Spec, error]) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		for spec, err := range specs {
			var j Job
			if err == nil {
				j, err = newJob(spec)
			}
			if !yield(j, err) {
				return
			}
		}
	}
}
