package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/metrics"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spotworker/spotworker/job"
)

func TestPayloads(t *testing.T) {
	a := setup(t)
	a.put(t, "data", "blob", nil)
	for _, c := range []struct{ raw, want string }{
		{``, "the payload is not that of the kind"},
		{`[]`, "the payload is not that of the kind"},
		{`{}`, `payload: blob is "", which is not a blob's name`},
		{`{"container":"data","blob":"a/../b","target_container":"out"}`, `payload: blob is "a/../b", which`},
		{`{"container":"data","blob":"a\\b","target_container":"out"}`, `payload: blob is "a\\b", which`},
		{`{"container":"data","blob":"blob","target_container":"out","target_blob":"a\u0000"}`,
			`payload: target_blob is "a\x00", which`},
		{`{"container":"data","blob":"blob","target_container":"out","level":20}`,
			"payload: level is 20; a level is 1 to 19"},
		{`{"container":"data","blob":"blob","target_container":"out","level":-1}`,
			"payload: level is -1; a level is 1 to 19"},
		{`{"container":"data","blob":"blob","target_container":"data","target_blob":"blob"}`,
			"payload: source and target are the same blob"},
		{`{"container":"secret","blob":"blob","target_container":"out"}`,
			`payload: this worker may not read container "secret"; COMPRESS_FROM allows it`},
		{`{"container":"data","blob":"blob","target_container":"data","target_blob":"blob.zst"}`,
			`payload: this worker may not write container "data"; COMPRESS_TO allows it`},
	} {
		a.once(look, func() { t.Errorf("payload %s: a blob was looked at", c.raw) })
		_, err := a.compressor.handler().Run(t.Context(), job.New(job.Spec{ID: "job", Payload: []byte(c.raw)}, nil))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || !job.IsPermanent(err) {
			t.Errorf("payload %s\n got %v (permanent %t)\nwant %s", c.raw, err, job.IsPermanent(err), c.want)
		}
	}
}

func TestStates(t *testing.T) {
	a := setup(t)
	a.put(t, "data", "blob", content(2*testChunk+1))
	good := string(a.evicted(t, 1).State)
	run := func(state string, version int) error {
		saved := &job.Progress{State: []byte(state), Version: version}
		_, err := a.compressor.handler().Run(t.Context(), compressJob("job-1", "blob", saved))
		return err
	}
	var unknown *job.VersionError
	if err := run(good, 2); !errors.As(err, &unknown) || unknown.Version != 2 || job.IsPermanent(err) {
		t.Errorf("state of version 2 = %v, want an error that names the version, which another worker may know", err)
	}
	frame := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for _, state := range []string{
		"", "{}",
		strings.Replace(good, `"offset":`, `"offset":-`, 1),
		strings.Replace(good, `"offset":`, `"offset":1`, 1),
		strings.Replace(good, `"chunk":`, `"chunk":-`, 1),
		strings.Replace(good, `"frames":"`, `"frames":"AAAA`, 1),
		strings.Replace(good, `"frames":"`, `"frames":"`+frame[:40], 1),
		strings.Replace(good, `"source_hash":"`, `"source_hash":"AAAA`, 1),
		strings.Replace(good, `"target_hash":"`, `"target_hash":"AAAA`, 1),
		strings.Replace(good, `"target_hash":`, `"other":`, 1),
	} {
		if err := run(state, stateVersion); !job.IsPermanent(err) || !strings.HasPrefix(err.Error(), "the recorded state ") {
			t.Errorf("state %q = %v, want a permanent error about the state", state, err)
		}
	}
	if err := run(good, stateVersion); err != nil {
		t.Errorf("the state that was reported: %v", err)
	}
}

// TestRefusals: an error is one line, and says whether another attempt may succeed.
func TestRefusals(t *testing.T) {
	const retried, unavailable, permanent = 0, 1, 2
	for _, c := range []struct {
		operation string
		reply     *http.Response // nil: no reply
		kind      int
		want      string
	}{
		{read, refusal(http.StatusForbidden, "AuthorizationPermissionMismatch"), retried,
			`read blob "blob" in container data: the storage service answered 403 AuthorizationPermissionMismatch`},
		{stage, refusal(http.StatusForbidden, "AuthorizationPermissionMismatch"), retried,
			`write blob "blob.zst" in container out: the storage service answered 403 AuthorizationPermissionMismatch`},
		{read, refusal(http.StatusConflict, "BlobArchived"), permanent,
			`read blob "blob" in container data: the storage service answered 409 BlobArchived`},
		{stage, refusal(http.StatusNotFound, "ContainerNotFound"), permanent,
			`write blob "blob.zst" in container out: the storage service answered 404 ContainerNotFound`},
		{stage, refusal(http.StatusBadRequest, "InvalidBlobOrBlock"), permanent,
			`write blob "blob.zst" in container out: the storage service answered 400 InvalidBlobOrBlock`},
		{commit, refusal(http.StatusServiceUnavailable, "ServerBusy"), unavailable,
			`write blob "blob.zst" in container out: the storage service answered 503 ServerBusy`},
		{read, refusal(http.StatusTooManyRequests, "TooManyRequests"), unavailable,
			`read blob "blob" in container data: the storage service answered 429 TooManyRequests`},
		{look, nil, unavailable, `read blob "blob.zst" in container out: unexpected EOF`},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := setup(t)
			a.put(t, "data", "blob", content(10))
			a.onCall(func(operation string) (*http.Response, bool) {
				if operation == c.operation {
					return c.reply, c.reply == nil
				}
				return nil, false
			})
			_, err := a.compressor.handler().Run(t.Context(), compressJob("job-1", "blob", nil))
			if err == nil || err.Error() != c.want ||
				job.IsPermanent(err) != (c.kind == permanent) || job.IsInterrupted(err) != (c.kind == unavailable) {
				t.Errorf("compress = %v (permanent %t, interrupted %t)\nwant       %s",
					err, job.IsPermanent(err), job.IsInterrupted(err), c.want)
			}
		})
	}
}

func TestMissingSource(t *testing.T) {
	a := setup(t)
	_, err := a.compressor.handler().Run(t.Context(), compressJob("job-1", "gone", nil))
	const want = `read blob "gone" in container data: the storage service answered 404 BlobNotFound`
	if err == nil || err.Error() != want || !job.IsPermanent(err) {
		t.Errorf("compress = %v (permanent %t), want the permanent error %q", err, job.IsPermanent(err), want)
	}
}

func TestChunkSize(t *testing.T) {
	for _, c := range []struct{ size, want int64 }{
		{0, 4 << 20}, {1, 4 << 20}, {50_000 * 4 << 20, 4 << 20}, {50_000*4<<20 + 1, 5 << 20}, {50_000 * 16 << 20, 16 << 20},
	} {
		if got, err := chunkSize(c.size, leastChunk); got != c.want || err != nil {
			t.Errorf("chunkSize(%d) = %d, %v, want %d", c.size, got, err, c.want)
		}
	}
	if got, err := chunkSize(50_000*16<<20+1, leastChunk); err == nil {
		t.Errorf("chunkSize of what does not fit into a blob's blocks = %d, want an error", got)
	}
}

// TestBlockIDs: the id differs between jobs, places and contents, and has the length that
// the service allows.
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

// FuzzState: a recorded state is refused, or has as many frames as its offset needs, reads
// bounded chunks, and is written again as it was read.
func FuzzState(f *testing.F) {
	s := newState(`"0x1"`, 100, 40)
	s.add(make([]byte, 40), []byte("frame"))
	good, err := json.Marshal(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, change := range [][2]string{
		{`"offset":40`, `"offset":9223372036854775807`},
		{`"offset":40`, `"offset":-40`},
		{`"size":100`, `"size":0`},
		{`"size":100`, `"size":9223372036854775807`},
		{`"chunk":40`, `"chunk":0`},
		{`"chunk":40`, `"chunk":1`},
		{`"chunk":40`, `"chunk":9223372036854775807`},
		{`"chunk":40`, `"chunk":-1`},
		{`"frames":"`, `"frames":"AAAA`},
		{`"frames":"`, `"frames":"","x":"`},
		{`"written":5`, `"written":-5`},
		{`"target_hash":"`, `"target_hash":"A`},
		{`{`, `{"restarts":-5,`},
	} {
		f.Add([]byte(strings.Replace(string(good), change[0], change[1], 1)))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var s state
		if json.Unmarshal(raw, &s) != nil || !s.possible() {
			return
		}
		if n := s.next(); s.Offset < 0 || s.Offset > s.Size || n < 0 || n > largestChunk || s.Written < 0 || s.Restarts < 0 {
			t.Fatalf("state %s was read as %+v, whose next frame has %d bytes", raw, s, n)
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatalf("state cannot be written: %v", err)
		}
		var back state
		if err := json.Unmarshal(again, &back); err != nil || !back.possible() ||
			back.Offset != s.Offset || back.Written != s.Written || back.frames() != s.frames() {
			t.Fatalf("written and read again as %+v, %v, want %+v", back, err, s)
		}
	})
}

// endless is a store whose source is zeros and whose targets are counted and thrown away.
type endless struct {
	size, blocks, written int64
	peak                  uint64 // of the heap
}

func (e *endless) Do(r *http.Request) (*http.Response, error) {
	e.peak = max(e.peak, heap())
	reply := &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Etag": {`"1"`}}, Body: http.NoBody, ContentLength: e.size, Request: r,
	}
	switch query := r.URL.Query().Get("comp"); {
	case r.Method == http.MethodHead && strings.Contains(r.URL.Path, "/out/"):
		return refusal(http.StatusNotFound, "BlobNotFound"), nil
	case r.Method == http.MethodGet:
		var first, last int64
		if _, err := fmt.Sscanf(rangeOf(r), "bytes=%d-%d", &first, &last); err != nil {
			return nil, err
		}
		reply.StatusCode, reply.ContentLength = http.StatusPartialContent, last-first+1
		reply.Body = io.NopCloser(io.LimitReader(zero{}, reply.ContentLength))
	case query == "block":
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return nil, err
		}
		e.blocks++
		e.written += n
		reply.StatusCode = http.StatusCreated
	case query == "blocklist":
		reply.StatusCode = http.StatusCreated
	}
	reply.Header.Set("Content-Length", fmt.Sprint(reply.ContentLength))
	return reply, nil
}

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// heap returns the bytes of live objects and of garbage that is not collected yet.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// TestMemoryIsFlat compresses 256 MiB.
func TestMemoryIsFlat(t *testing.T) {
	const limit = 64 << 20
	e := &endless{size: 256 << 20}
	base := heap()
	account := connectTo(t, "AccountName=x;AccountKey=bm90IGEga2V5;BlobEndpoint=http://127.0.0.1:1/x", e)
	c := &compressor{
		container: account.NewContainerClient, sources: []string{"data"}, targets: []string{"out"}, chunk: leastChunk,
	}
	raw, err := c.handler().Run(t.Context(), compressJob("job-1", "blob", nil))
	if err != nil {
		t.Fatal(err)
	}
	if r := decode(t, raw); e.blocks != e.size/leastChunk || r.TargetBytes != e.written {
		t.Errorf("%d blocks of %d bytes, result %+v; want %d and the same size", e.blocks, e.written, r, e.size/leastChunk)
	}
	if growth := int64(e.peak) - int64(base); growth > limit {
		t.Errorf("the heap grew by %d bytes, want at most %d", growth, limit)
	}
}
