//go:build unix

package process

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/archive"
	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// TestGigabyteFolder is the promise for large checkpoints, in figures: of a
// folder of 1 GiB of which 1 % has changed about 1 % is sent, and neither taking
// and saving nor restoring it takes 64 MiB of the worker's memory.
func TestGigabyteFolder(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 1 GiB to disk, and hashes 2")
	}
	const files, each = 64, 16 << 20
	service := &sink{}
	account, err := azure.Connect(azure.Config{ConnectionString: storage.New(storage.Options{}).ConnectionString(), Transport: service})
	if err != nil {
		t.Fatal(err)
	}
	claim := checkpoint.NewStore(account.Container("jobs")).Fresh(checkpoint.Delivery{ID: "a", Kind: "k", MessageID: "m"}, "worker")
	k := newKeeper(t)
	k.limits = archive.Limits{Bytes: job.MaxStream, Entries: maxEntries}
	save := func() error {
		p, err := k.take()
		if err != nil {
			return err
		}
		return claim.Save(t.Context(), checkpoint.Snapshot{Stream: p.Stream, Version: p.Version})
	}

	work := filepath.Join(t.TempDir(), "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	for n := range files {
		writeChunks(t, filepath.Join(work, fmt.Sprintf("part-%02d", n)), n*each, each+n*1000)
	}
	linkAll(t, work, k.from)
	first := service.measure(save)
	first.log(t, "first save")
	if first.err != nil || first.sent < files*each {
		t.Fatalf("first save sent %d bytes, %v, want all of it", first.sent, first.err)
	}

	// One file of 64 is written anew in 10 of its 16 MiB, which is 1 % of all,
	// and a small one is new.
	changed := filepath.Join(work, "part-33")
	if err := os.Remove(changed); err != nil {
		t.Fatal(err)
	}
	writeChunks(t, changed, 33*each, each+33*1000)
	for at := int64(0); at < 10<<20; at += 1 << 20 {
		overwrite(t, changed, at)
	}
	appendTo(t, filepath.Join(work, "cursor.json"), `{"step":2}`)
	linkAll(t, work, k.from)
	second := service.measure(save)
	second.log(t, "second save")
	if limit := int64(10<<20 + 3<<20); second.err != nil || second.sent > limit || second.sent < 10<<20 {
		t.Errorf("second save sent %d bytes, %v, want the changed 10 MiB, and no more than %d", second.sent, second.err, limit)
	}

	stream, err := k.last.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	back := t.TempDir()
	restored := service.measure(func() error { return archive.Extract(watched{stream, service}, back, k.limits) })
	restored.log(t, "restore")
	if restored.err != nil {
		t.Fatal(restored.err)
	}
	if got, want := sizeOf(back), sizeOf(work); got != want {
		t.Errorf("%d bytes came back, want %d", got, want)
	}
	for what, m := range map[string]measured{"first save": first, "second save": second, "restore": restored} {
		if limit := uint64(64 << 20); m.heap > limit {
			t.Errorf("%s: the heap grew by %d bytes, want no more than %d", what, m.heap, limit)
		}
	}
}

// watched is a stream during whose reading the heap is looked at.
type watched struct {
	io.Reader
	sink *sink
}

func (w watched) Read(p []byte) (int, error) {
	w.sink.look()
	return w.Reader.Read(p)
}

var filler = bytes.Repeat([]byte("0123456789abcdef"), 1<<20/16)

// writeChunks writes a file of which no two MiBs are the same, nor the same as
// those of a file with another number.
func writeChunks(t *testing.T, name string, number, size int) {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	chunk := bytes.Clone(filler)
	for at := 0; at < size && err == nil; at += len(chunk) {
		binary.BigEndian.PutUint64(chunk, uint64(number+at))
		_, err = file.Write(chunk[:min(len(chunk), size-at)])
	}
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

func overwrite(t *testing.T, name string, at int64) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt([]byte("changed"), at+1000)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// linkAll makes a folder of links to all files of another, as a program would
// that keeps its checkpoints cheap.
func linkAll(t *testing.T, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if err := os.Link(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// sink is a storage service that keeps nothing: it counts what it is sent, and
// wants no block named that never came.
type sink struct {
	mu   sync.Mutex
	etag int
	sent int64  // bytes of headers and bodies
	top  uint64 // of the heap
	has  map[string]bool
}

// measured is what one step took.
type measured struct {
	err  error
	sent int64
	heap uint64 // bytes by which it grew at most
	took time.Duration
}

func (m measured) log(t *testing.T, what string) {
	t.Logf("%s of 1 GiB: %d bytes sent, heap + %.1f MiB, %s", what, m.sent, float64(m.heap)/(1<<20), m.took.Round(time.Millisecond))
}

func (s *sink) measure(do func() error) measured {
	runtime.GC()
	before, began := heapNow(), time.Now()
	s.sent, s.top = 0, 0
	err := do()
	return measured{err: err, sent: s.sent, heap: max(s.top, before) - before, took: time.Since(began)}
}

// heapNow is how many bytes objects occupy, those included that wait to be freed.
func heapNow() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func (s *sink) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.top = max(s.top, heapNow())
}

// Do implements policy.Transporter.
func (s *sink) Do(r *http.Request) (*http.Response, error) {
	var body bytes.Buffer
	comp, n := r.URL.Query().Get("comp"), int64(0)
	if r.Body != nil {
		to := io.Discard
		if comp == "blocklist" {
			to = &body
		}
		n, _ = io.Copy(to, r.Body)
	}
	for key, values := range r.Header {
		n += int64(len(key) + len(strings.Join(values, ", ")))
	}
	s.look()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent += n
	switch {
	case r.Method != http.MethodPut:
		return nil, errors.New("not expected here: " + r.Method)
	case comp == "block":
		if s.has == nil {
			s.has = map[string]bool{}
		}
		s.has[r.URL.Query().Get("blockid")] = true
	case comp == "blocklist":
		var list struct{ Latest []string }
		if err := xml.Unmarshal(body.Bytes(), &list); err != nil {
			return nil, err
		}
		for _, id := range list.Latest {
			if !s.has[id] {
				return nil, errors.New("a block was named that never came")
			}
		}
	}
	if comp != "block" {
		s.etag++
	}
	header := http.Header{"Etag": {fmt.Sprintf(`"%d"`, s.etag)}}
	return &http.Response{StatusCode: http.StatusCreated, Header: header, Body: http.NoBody, Request: r}, nil
}
