package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/klauspost/compress/zstd"

	"github.com/spotworker/spotworker/client/clienttest"
	"github.com/spotworker/spotworker/job"
)

const testChunk = 64 << 10

// account is the storage account of a deployment in memory, with the containers "data"
// and "out". A job reads the first and writes the second.
type account struct {
	*service.Client
	compressor *compressor

	transport policy.Transporter

	mu     sync.Mutex
	before func(operation string) (reply *http.Response, lost bool) // of the job's calls
	ranges []string                                                 // that jobs have read
}

func setup(t *testing.T) *account {
	t.Helper()
	o := clienttest.Options(t, nil)
	return setupWith(t, o.ConnectionString, o.Transport)
}

func setupWith(t *testing.T, connection string, transport policy.Transporter) *account {
	t.Helper()
	a := &account{transport: transport}
	a.Client = connectTo(t, connection, transport)
	for _, name := range []string{"data", "out"} {
		if _, err := a.NewContainerClient(name).Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	jobs := connectTo(t, connection, a)
	// Chunks are small since compression is slow under the race detector.
	a.compressor = &compressor{
		container: jobs.NewContainerClient, sources: []string{"data"}, targets: []string{"out"}, chunk: testChunk,
	}
	return a
}

func connectTo(t *testing.T, connection string, transport policy.Transporter) *service.Client {
	t.Helper()
	options := &service.ClientOptions{ClientOptions: policy.ClientOptions{Transport: transport}}
	c, err := service.NewClientFromConnectionString(connection, options)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Operations of a job.
const (
	look   = "HEAD"
	read   = "GET"
	list   = "GET blocklist"
	stage  = "PUT block"
	commit = "PUT blocklist"
)

// Do implements [policy.Transporter] for the calls of jobs.
func (a *account) Do(r *http.Request) (*http.Response, error) {
	operation := strings.TrimSpace(r.Method + " " + r.URL.Query().Get("comp"))
	a.mu.Lock()
	before := a.before
	if operation == read {
		a.ranges = append(a.ranges, rangeOf(r))
	}
	a.mu.Unlock()
	lost := false
	if before != nil {
		var reply *http.Response
		if reply, lost = before(operation); reply != nil {
			reply.Request = r
			return reply, nil
		}
	}
	reply, err := a.transport.Do(r)
	if lost && err == nil {
		_ = reply.Body.Close()
		return nil, io.ErrUnexpectedEOF
	}
	return reply, err
}

// onCall has f called before each call of a job. A reply of f replaces the service's
// reply; if lost, the call has its effect and its reply is lost.
func (a *account) onCall(f func(operation string) (reply *http.Response, lost bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.before = f
}

// once has f called before the first call of an operation.
func (a *account) once(operation string, f func()) {
	var done atomic.Bool
	a.onCall(func(called string) (*http.Response, bool) {
		if called == operation && done.CompareAndSwap(false, true) {
			f()
		}
		return nil, false
	})
}

// rangeOf returns a request's range in a header whose key is not canonical in the SDK.
func rangeOf(r *http.Request) string {
	for key, values := range r.Header {
		if strings.EqualFold(key, "x-ms-range") {
			return values[0]
		}
	}
	return ""
}

// refusal is a reply of the service with that error code.
func refusal(status int, code string) *http.Response {
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status,
		Header: http.Header{"X-Ms-Error-Code": {code}}, Body: http.NoBody,
	}
}

// served returns the ranges that jobs have read since the last call.
func (a *account) served() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	ranges := a.ranges
	a.ranges = nil
	return ranges
}

func (a *account) put(t *testing.T, container, blob string, data []byte) {
	t.Helper()
	// A blob of a test that ends with its context is put all the same.
	if _, err := a.blob(container, blob).UploadBuffer(context.WithoutCancel(t.Context()), data, nil); err != nil {
		t.Errorf("put blob %s: %v", blob, err)
	}
}

func (a *account) blob(container, name string) *blockblob.Client {
	return a.NewContainerClient(container).NewBlockBlobClient(name)
}

func (a *account) deleteTarget(t *testing.T) {
	t.Helper()
	if _, err := a.blob("out", "blob.zst").Delete(context.WithoutCancel(t.Context()), nil); err != nil {
		t.Error(err)
	}
}

// content is data that shrinks to about half, and that no two chunks have in common.
func content(size int) []byte {
	data := make([]byte, size)
	_, _ = io.ReadFull(rand.NewChaCha8([32]byte{7}), data)
	for i := range data {
		data[i] = 'a' + data[i]&15
	}
	return data
}

func payloadFor(blob string) []byte {
	raw, _ := json.Marshal(payload{Container: "data", Blob: blob, TargetContainer: "out"}) // strings do marshal
	return raw
}

func compressJob(id, blob string, saved *job.Progress) *job.Job {
	return job.New(job.Spec{ID: id, Kind: "compress", Payload: payloadFor(blob), Attempt: 1}, saved)
}

// run runs the job "job-1", which must succeed.
func (a *account) run(t *testing.T, saved *job.Progress) (compressResult, *job.Job) {
	t.Helper()
	j := compressJob("job-1", "blob", saved)
	raw, err := a.compressor.handler().Run(t.Context(), j)
	if err != nil {
		t.Fatalf("compress = %v, want a result", err)
	}
	return decode(t, raw), j
}

func decode(t *testing.T, raw []byte) (r compressResult) {
	t.Helper()
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatalf("result %q: %v", raw, err)
	}
	return r
}

// evicted runs the job until it was stopped before chunk n, counted from 0, and returns
// the last report.
func (a *account) evicted(t *testing.T, n int) *job.Progress {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	reads := 0
	a.onCall(func(operation string) (*http.Response, bool) {
		if operation == read {
			if reads++; reads > n {
				cancel(&job.Stop{Reason: job.Evicted})
			}
		}
		return nil, false
	})
	j := compressJob("job-1", "blob", nil)
	if _, err := a.compressor.handler().Run(ctx, j); err == nil || job.StopOf(ctx) == nil {
		t.Fatalf("stopped run = %v, want the stop", err)
	}
	a.onCall(nil)
	a.served()
	return job.ControlOf(j).Latest()
}

// wantTarget fails the test unless the target holds data, and the result describes it.
func (a *account) wantTarget(t *testing.T, r compressResult, data []byte) {
	t.Helper()
	reply, err := a.blob("out", r.TargetBlob).DownloadStream(context.WithoutCancel(t.Context()), nil)
	if err != nil {
		t.Fatalf("target %s: %v", r.TargetBlob, err)
	}
	packed, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := unpack(t, packed); !bytes.Equal(got, data) {
		t.Errorf("the target unpacks to %d bytes, want the %d bytes of the source", len(got), len(data))
	}
	if r.SHA256 != sha(data) || r.TargetSHA256 != sha(packed) {
		t.Errorf("hashes = %s, %s, want %s, %s", r.SHA256, r.TargetSHA256, sha(data), sha(packed))
	}
	if r.Bytes != int64(len(data)) || r.TargetBytes != int64(len(packed)) {
		t.Errorf("sizes = %d, %d, want %d, %d", r.Bytes, r.TargetBytes, len(data), len(packed))
	}
	if reply.ContentType == nil || *reply.ContentType != zstdType {
		t.Errorf("content type = %v, want %s", reply.ContentType, zstdType)
	}
}

// blocks returns the sizes of the target's committed and staged blocks.
func (a *account) blocks(t *testing.T, name string) (committed, staged int) {
	t.Helper()
	reply, err := a.blob("out", name).GetBlockList(t.Context(), blockblob.BlockListTypeAll, nil)
	if err != nil {
		t.Fatal(err)
	}
	return len(reply.CommittedBlocks), len(reply.UncommittedBlocks)
}

func unpack(t *testing.T, packed []byte) []byte {
	t.Helper()
	decoder, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	data, err := io.ReadAll(decoder)
	if err != nil {
		t.Errorf("unpack: %v", err)
	}
	return data
}

func sha(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
