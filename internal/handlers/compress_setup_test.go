package handlers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

const testChunk = 64 << 10

// packer is a bench whose compress handler reads "data" and writes "out".
type packer struct {
	*bench
	compress *Compress
}

func setupPacker(t *testing.T) *packer {
	t.Helper()
	b := setup(t)
	if _, err := b.account.Container("out").Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	p := &packer{bench: b}
	p.compress = p.handler()
	return p
}

// handler is one as a worker makes it, but for smaller chunks: compression is
// slow under the race detector.
func (p *packer) handler() *Compress {
	h := NewCompress(p.account.Container, []string{"data"}, []string{"out"}, discard())
	h.chunk = testChunk
	return h
}

// compressJob is a compress job from the container "data" to "out".
func compressJob(blob string, saved *job.Progress) *job.Job {
	return compressJobOf("job-1", blob, saved)
}

func compressJobOf(id, blob string, saved *job.Progress) *job.Job {
	return job.New(job.Spec{ID: id, Kind: "compress", Payload: compressPayload(blob), Attempt: 1}, saved)
}

func compressPayload(blob string) []byte {
	payload, _ := json.Marshal(CompressPayload{Container: "data", Blob: blob, TargetContainer: "out"}) // strings do marshal
	return payload
}

// packable is data that shrinks to about half, and that no two chunks have in
// common.
func packable(size int) []byte {
	data := content(size)
	for i := range data {
		data[i] = 'a' + data[i]&15
	}
	return data
}

// run is a run of the job that must succeed.
func (p *packer) run(t *testing.T, j *job.Job) CompressResult {
	t.Helper()
	raw, err := p.compress.Run(t.Context(), j)
	if err != nil {
		t.Fatalf("compress = %v, want a result", err)
	}
	var result CompressResult
	if err := json.Unmarshal(raw, &result); err != nil {
		t.Fatalf("result %q: %v", raw, err)
	}
	return result
}

// stopped runs the job until it was stopped before range n+1, and returns what it
// reported.
func (p *packer) stopped(t *testing.T, n int) *job.Progress {
	t.Helper()
	j := compressJob("blob", nil)
	if _, err := p.compress.Run(p.stopAfter(t, n), j); err == nil {
		t.Fatal("stopped run = nil, want an error")
	}
	p.server.OnCall(nil)
	p.served()
	return j.Latest()
}

// wantPacked fails the test unless the target holds data, and the result describes it.
func (p *packer) wantPacked(t *testing.T, result CompressResult, data []byte) {
	t.Helper()
	state, packed, ok := p.server.ReadBlob("out", result.TargetBlob)
	if !ok {
		t.Fatalf("there is no blob %s in container out", result.TargetBlob)
	}
	if got := unpack(t, packed); !bytes.Equal(got, data) {
		t.Errorf("the target unpacks to %d bytes, want the %d bytes of the source", len(got), len(data))
	}
	if result.SHA256 != sha(data) || result.TargetSHA256 != sha(packed) {
		t.Errorf("hashes = %s, %s, want %s, %s", result.SHA256, result.TargetSHA256, sha(data), sha(packed))
	}
	if result.Bytes != int64(len(data)) || result.TargetBytes != int64(len(packed)) {
		t.Errorf("sizes = %d, %d, want %d, %d", result.Bytes, result.TargetBytes, len(data), len(packed))
	}
	if state.ContentType != "application/zstd" {
		t.Errorf("content type = %q, want application/zstd", state.ContentType)
	}
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

// once has f called within the first call of an operation, before its effect.
func (p *packer) once(operation string, f func()) {
	done := false
	p.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == operation && !done {
			done = true
			f()
		}
		return storage.Fault{}
	})
}

// putTarget makes the target as somebody else.
func (p *packer) putTarget(t *testing.T) {
	t.Helper()
	if _, err := p.account.Container("out").NewBlockBlobClient("blob.zst").UploadBuffer(context.WithoutCancel(t.Context()), []byte("somebody's"), nil); err != nil {
		t.Error(err)
	}
}

func (p *packer) deleteTarget(t *testing.T) {
	t.Helper()
	if _, err := p.account.Container("out").NewBlobClient("blob.zst").Delete(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
