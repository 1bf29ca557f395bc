package handlers

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/testing/cost"
	"github.com/spotworker/spotworker/job"
)

func TestCompressPayloads(t *testing.T) {
	p := setupPacker(t)
	p.put(t, "blob", nil)
	for payload, want := range map[string]string{
		``:   `it must be a JSON object such as {"container":"data","blob":"2026/a.tar","target_container":"packed"}`,
		`[]`: `it must be a JSON object such as {"container":"data","blob":"2026/a.tar","target_container":"packed"}`,
		`{}`: "field container is missing or empty",
		`{"container":"data","target_container":"out"}`:                                         "field blob is missing or empty",
		`{"container":"data","blob":"blob"}`:                                                    "field target_container is missing or empty",
		`{"container":"data","blob":"blob","target_container":"out","target_blob":"a/../b"}`:    "field target_blob has a part that ends with a dot, which no blob's name can have",
		`{"container":"data","blob":"blob","target_container":"out","level":20}`:                "field level is 20; a level is 1 to 19",
		`{"container":"data","blob":"blob","target_container":"out","level":-1}`:                "field level is -1; a level is 1 to 19",
		`{"container":"data","blob":"blob","target_container":"out","level":"high"}`:            "field level is a JSON string; it must be a whole number",
		`{"container":"data","blob":"blob","target_container":"data","target_blob":"blob"}`:     "source and target are the same blob",
		`{"container":"secret","blob":"blob","target_container":"out"}`:                         `container "secret" is not one that this worker may read; --data-container allows it`,
		`{"container":"data","blob":"blob","target_container":"data","target_blob":"blob.zst"}`: `container "data" is not one that this worker may write; --output-container allows it`,
	} {
		_, err := p.compress.Run(t.Context(), job.New(job.Spec{ID: "job", Payload: []byte(payload)}, nil))
		if err == nil || err.Error() != "payload of a compress job: "+want || !job.IsPermanent(err) {
			t.Errorf("payload %s\n got %v (permanent %t)\nwant payload of a compress job: %s", payload, err, job.IsPermanent(err), want)
		}
	}
	if got := p.server.Counts()[storage.OpGetBlobProperties]; got != 0 {
		t.Errorf("%d blobs were looked at, want none", got)
	}
}

func TestCompressStates(t *testing.T) {
	p := setupPacker(t)
	p.put(t, "blob", packable(2*testChunk+1))
	good := string(p.stopped(t, 1).State)
	frame := base64.StdEncoding.EncodeToString(make([]byte, 32))
	_, err := p.compress.Run(t.Context(), compressJob("blob", &job.Progress{State: []byte(good), Version: 2}))
	var unknown *job.VersionError
	if !errors.As(err, &unknown) || unknown.Version != 2 || job.IsPermanent(err) {
		t.Errorf("state of version 2 = %v, want an error that names the version, which another worker may know", err)
	}
	for _, c := range []struct{ state, want string }{
		{"", "it cannot be read: "},
		{"{}", "it cannot be right: "},
		{strings.Replace(good, `"offset":`, `"offset":-`, 1), "it cannot be right: "},
		{strings.Replace(good, `"offset":`, `"offset":1`, 1), "it cannot be right: "},
		{strings.Replace(good, `"chunk":`, `"chunk":-`, 1), "it cannot be right: "},
		{strings.Replace(good, `"frames":"`, `"frames":"AAAA`, 1), "it cannot be right: "},
		{strings.Replace(good, `"frames":"`, `"frames":"`+frame[:40], 1), "it cannot be "},
		{strings.Replace(good, `"source_hash":"`, `"source_hash":"AAAA`, 1), "it cannot be read: "},
		{strings.Replace(good, `"target_hash":"`, `"target_hash":"AAAA`, 1), "it cannot be read: "},
	} {
		_, err := p.compress.Run(t.Context(), compressJob("blob", &job.Progress{State: []byte(c.state), Version: 1}))
		if err == nil || !strings.HasPrefix(err.Error(), "recorded state of a compress job: "+c.want) || !job.IsPermanent(err) {
			t.Errorf("state %q = %v, want a permanent error: %s", c.state, err, c.want)
		}
	}
}

// TestCompressRefusals checks the reason that people read: one line, and what to do.
func TestCompressRefusals(t *testing.T) {
	for _, c := range []struct {
		operation string
		refusal   storage.Error
		want      string
		permanent bool
	}{
		{storage.OpGetBlob, storage.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"},
			`read blob "blob" in container data: access denied (403 AuthorizationPermissionMismatch): the identity that the worker signs in with needs the role Storage Blob Data Reader on that container`, false},
		{storage.OpPutBlock, storage.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"},
			`write blob "blob.zst" in container out: access denied (403 AuthorizationPermissionMismatch): the identity that the worker signs in with needs the role Storage Blob Data Contributor on that container`, false},
		{storage.OpPutBlockList, storage.Error{Status: http.StatusServiceUnavailable, Code: "ServerBusy"},
			`write blob "blob.zst" in container out: the storage service answered 503 ServerBusy`, false},
		{storage.OpPutBlock, storage.Error{Status: http.StatusBadRequest, Code: "InvalidBlobOrBlock"},
			`target blob "blob.zst" in container out has blocks that something else staged there and did not commit (400 InvalidBlobOrBlock): name another with target_blob, or wait a week`, true},
		{storage.OpPutBlock, storage.Error{Status: http.StatusNotFound, Code: "ContainerNotFound"}, `container out does not exist`, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := setupPacker(t)
			p.put(t, "blob", packable(10))
			p.server.OnCall(func(call storage.Call) storage.Fault {
				if call.Operation == c.operation {
					return storage.Fault{Refuse: &c.refusal}
				}
				return storage.Fault{}
			})
			_, err := p.compress.Run(t.Context(), compressJob("blob", nil))
			if err == nil || err.Error() != c.want || job.IsPermanent(err) != c.permanent {
				t.Errorf("compress = %v\nwant       %s (permanent %t)", err, c.want, c.permanent)
			}
		})
	}
}

func TestCompressOfWhatIsNotThere(t *testing.T) {
	p := setupPacker(t)
	p.compress.writable = append(p.compress.writable, "nowhere")
	elsewhere := job.New(job.Spec{Payload: []byte(`{"container":"data","blob":"x","target_container":"nowhere"}`)}, nil)
	for want, j := range map[string]*job.Job{
		`blob "gone" in container data does not exist`: compressJob("gone", nil),
		`container nowhere does not exist`:             elsewhere,
	} {
		_, err := p.compress.Run(t.Context(), j)
		if err == nil || err.Error() != want || !job.IsPermanent(err) {
			t.Errorf("compress = %v (permanent %t), want the permanent error %q", err, job.IsPermanent(err), want)
		}
	}
}

func TestChunkSize(t *testing.T) {
	for _, c := range []struct{ size, want int64 }{
		{0, 4 << 20}, {1, 4 << 20}, {50_000 * 4 << 20, 4 << 20}, {50_000*4<<20 + 1, 5 << 20}, {50_000 * 16 << 20, 16 << 20},
	} {
		if got, err := chunkSize(c.size, rangeSize); got != c.want || err != nil {
			t.Errorf("chunkSize(%d) = %d, %v, want %d", c.size, got, err, c.want)
		}
	}
	if got, err := chunkSize(50_000*16<<20+1, rangeSize); err == nil {
		t.Errorf("chunkSize of what does not fit into a blob's blocks = %d, want an error", got)
	}
}

// TestBlockIDs: an id tells job, place and content apart, and fits.
func TestBlockIDs(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"job-1", "job-2"} {
		for n := range 3 {
			for _, frame := range []string{"a", "b"} {
				to := &target{key: job.New(job.Spec{ID: name}, nil).Key("compress")}
				id, what := to.id(n, hashOf([]byte(frame))), fmt.Sprint(name, n, frame)
				raw, err := base64.StdEncoding.DecodeString(id)
				if other, again := seen[id]; again || err != nil || len(raw) != 52 {
					t.Errorf("id of %s = %s (%d bytes, %v), want 52 bytes unlike those of %q", what, id, len(raw), err, other)
				}
				seen[id] = what
			}
		}
	}
}

// sink is a store whose source is zeros and whose targets are counted and thrown
// away.
type sink struct {
	zeros
	blocks, written int64
}

func (s *sink) Do(r *http.Request) (*http.Response, error) {
	if !strings.HasPrefix(r.URL.Path, "/out/") {
		return s.zeros.Do(r)
	}
	reply := &http.Response{Status: "201 Created", StatusCode: http.StatusCreated, Header: http.Header{}, Body: http.NoBody, Request: r}
	switch {
	case r.Method == http.MethodHead:
		reply.Status, reply.StatusCode = "404 Not Found", http.StatusNotFound
		reply.Header.Set("x-ms-error-code", "BlobNotFound")
	case r.URL.Query().Get("comp") == "block":
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return nil, err
		}
		s.blocks++
		s.written += n
	}
	return reply, nil
}

// TestCompressMemoryIsFlat compresses 256 MiB.
func TestCompressMemoryIsFlat(t *testing.T) {
	const size, limit = 256 << 20, 64 << 20
	s := &sink{zeros: zeros{size: size, etag: `"1"`}}
	runtime.GC()
	base, peak := cost.Heap(), uint64(0)
	s.asked = func(*http.Request) { peak = max(peak, cost.Heap()) }
	began := time.Now()
	handler := NewCompress(clientOf(t, s), []string{"data"}, []string{"out"}, discard())
	result, err := handler.Run(t.Context(), compressJob("blob", nil))
	if err != nil {
		t.Fatal(err)
	}
	if s.blocks != size/rangeSize || !strings.Contains(string(result), fmt.Sprintf(`"target_bytes":%d,`, s.written)) {
		t.Errorf("%d blocks of %d bytes, result %s; want %d and the same size", s.blocks, s.written, result, size/rangeSize)
	}
	growth := int64(peak) - int64(base)
	t.Logf("256 MiB in %v, heap %d KiB before, at most %d KiB more during the run", time.Since(began).Round(time.Millisecond), base>>10, growth>>10)
	if growth > limit {
		t.Errorf("the heap grew by %d bytes, want at most %d", growth, limit)
	}
}
