package handlers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a storage account with one container, "data", and a digest handler
// that may read it.
type bench struct {
	server  *storage.Server
	account *azure.Account
	digest  *Digest

	mu   sync.Mutex
	read []storage.Range // what GetBlob served, in order
}

func setup(t *testing.T) *bench {
	t.Helper()
	b := &bench{server: storage.New(storage.Options{})}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: b.server.ConnectionString(), Transport: b.server.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	b.account = account
	if _, err := account.Container("data").Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b.digest = NewDigest(account.Container, []string{"data"}, discard())
	b.server.OnResult(func(r storage.Result) {
		if r.Operation == storage.OpGetBlob && r.Served.Count > 0 {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.read = append(b.read, r.Served)
		}
	})
	return b
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// put stores a blob in the container.
func (b *bench) put(t *testing.T, name string, data []byte) {
	t.Helper()
	_, err := b.account.Container("data").NewBlockBlobClient(name).Upload(t.Context(), streaming.NopCloser(bytes.NewReader(data)), nil)
	if err != nil {
		t.Fatalf("put blob %s: %v", name, err)
	}
}

// served returns the ranges that were read since the last call.
func (b *bench) served() []storage.Range {
	b.mu.Lock()
	defer b.mu.Unlock()
	read := b.read
	b.read = nil
	return read
}

// content is data that no two ranges have in common.
func content(size int) []byte {
	data := make([]byte, size)
	_, _ = io.ReadFull(rand.NewChaCha8([32]byte{7}), data)
	return data
}

// digestJob is a digest job for a blob of the container "data".
func digestJob(blob string, saved *job.Progress) *job.Job {
	payload, _ := json.Marshal(DigestPayload{Container: "data", Blob: blob}) // strings do marshal
	return job.New(job.Spec{ID: "job-1", Kind: "digest", Payload: payload, Attempt: 1}, saved)
}

// wantDigest fails the test unless raw is the result for these bytes.
func wantDigest(t *testing.T, raw []byte, data []byte) {
	t.Helper()
	var result DigestResult
	if err := json.Unmarshal(raw, &result); err != nil {
		t.Fatalf("result %q: %v", raw, err)
	}
	sum := sha256.Sum256(data)
	if want := hex.EncodeToString(sum[:]); result.Digest != want || result.Bytes != int64(len(data)) {
		t.Errorf("digest = %s of %d bytes, want %s of %d", result.Digest, result.Bytes, want, len(data))
	}
}

// clientOf makes containers of clients with a transport of the test's own.
func clientOf(t *testing.T, transport doer) func(string) *container.Client {
	t.Helper()
	return func(name string) *container.Client {
		options := &container.ClientOptions{}
		options.Transport = transport
		client, err := container.NewClientWithNoCredential("http://127.0.0.1:1/"+name, options)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
}

// stopAfter returns a context that is stopped, as by an eviction, when the
// account serves its range number n+1 from now on.
func (b *bench) stopAfter(t *testing.T, n int) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	count := 0
	b.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == storage.OpGetBlob {
			if count == n {
				cancel(&job.Stop{Reason: job.Evicted})
			}
			count++
		}
		return storage.Fault{}
	})
	return ctx
}
