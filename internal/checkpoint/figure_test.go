package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/emulator/storage"
)

// TestGigabyte is promise 7 for large states, in figures: of a state of 1 GiB of
// which 1 % has changed, about 1 % is sent; and neither saving nor restoring it
// takes more memory than the blocks under way.
func TestGigabyte(t *testing.T) {
	if testing.Short() {
		t.Skip("it hashes 3 GiB")
	}
	const size = 1 << 30
	service := &sink{generate: generated{size: size}.reader}
	account, err := azure.Connect(azure.Config{ConnectionString: storage.New(storage.Options{}).ConnectionString(), Transport: service})
	if err != nil {
		t.Fatal(err)
	}
	c := NewStore(account.Container(recordsName)).Fresh(ours, "worker-1")

	first := service.measure(func() error { return c.Save(t.Context(), generated{size: size}.snapshot()) })
	first.log(t, "first save")
	if first.err != nil || first.sent < size {
		t.Fatalf("first save sent %d bytes, %v, want all of it", first.sent, first.err)
	}

	// One percent in one piece, which touches as many chunks as it can.
	next := generated{size: size, from: 333*chunkSize - chunkSize/10, to: 333*chunkSize - chunkSize/10 + size/100}
	second := service.measure(func() error { return c.Save(t.Context(), next.snapshot()) })
	second.log(t, "second save")
	if limit := int64(size/1000*11 + 1<<20); second.err != nil || second.sent > limit || second.sent < size/100 {
		t.Errorf("second save sent %d bytes, %v, want the changed 1%%, and no more than %d", second.sent, second.err, limit)
	}

	service.generate = next.reader
	restored := service.measure(func() error { return readGenerated(t.Context(), c) })
	restored.log(t, "restore")
	if restored.err != nil {
		t.Errorf("restore = %v, want the state", restored.err)
	}

	for what, m := range map[string]measured{"first save": first, "second save": second, "restore": restored} {
		if limit := uint64(64 << 20); m.heap > limit {
			t.Errorf("%s: the heap grew by %d bytes, want no more than %d", what, m.heap, limit)
		}
	}
}

// readGenerated reads the recorded state to its end and checks its length; the
// reader itself checks its bytes.
func readGenerated(ctx context.Context, c *Claim) error {
	r, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	n, err := io.Copy(io.Discard, r)
	if err == nil && n != c.Record().StateSize {
		err = fmt.Errorf("read %d bytes, want %d", n, c.Record().StateSize)
	}
	return err
}

// generated is a state that is nowhere in memory. Its chunks all differ. A run
// of it may be changed.
type generated struct{ size, from, to int64 }

var filler = bytes.Repeat([]byte("0123456789abcdef"), chunkSize/16)

func (g generated) snapshot() Snapshot {
	return Snapshot{Stream: func() (io.ReadCloser, error) { return io.NopCloser(g.reader(0, g.size)), nil }}
}

// reader reads so many bytes from an offset, which is a whole number of chunks.
func (g generated) reader(offset, count int64) io.Reader {
	return &generator{state: g, next: offset, end: offset + count}
}

type generator struct {
	state     generated
	next, end int64
}

// Read implements [io.Reader]. The number of the chunk stands at its start, and
// what has changed is inverted.
func (g *generator) Read(p []byte) (int, error) {
	if g.next == g.end {
		return 0, io.EOF
	}
	at := g.next % chunkSize
	p = p[:min(int64(len(p)), chunkSize-at, g.end-g.next)]
	copy(p, filler[at:])
	if at == 0 && len(p) >= 8 {
		binary.BigEndian.PutUint64(p, uint64(g.next/chunkSize))
	}
	from, to := max(g.state.from-g.next, 0), min(g.state.to-g.next, int64(len(p)))
	for i := from; i < to; i++ {
		p[i] ^= 0xff
	}
	g.next += int64(len(p))
	return len(p), nil
}

// sink is a storage service that keeps nothing: it counts what it is sent, knows
// which blocks it was given, and serves a state that is generated.
type sink struct {
	generate func(offset, count int64) io.Reader

	mu   sync.Mutex
	etag int
	sent int64 // bytes of headers and bodies
	top  uint64
	has  map[string]bool // blocks, staged or committed
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
	before, begun := heapNow(), time.Now()
	s.sent, s.top = 0, 0
	err := do()
	return measured{err: err, sent: s.sent, heap: max(s.top, before) - before, took: time.Since(begun)}
}

// heapNow is how many bytes objects occupy, those included that wait to be freed.
func heapNow() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// Do implements policy.Transporter.
func (s *sink) Do(r *http.Request) (*http.Response, error) {
	var body bytes.Buffer
	var n int64
	if r.Body != nil {
		to := io.Discard
		if r.URL.Query().Get("comp") == "blocklist" {
			to = &body
		}
		n, _ = io.Copy(to, r.Body)
	}
	header := http.Header{} // with canonical keys, as on the wire
	for key, values := range r.Header {
		n += int64(len(key) + len(strings.Join(values, ", ")))
		header[http.CanonicalHeaderKey(key)] = values
	}
	r.Header = header
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent += n
	s.top = max(s.top, heapNow())
	return s.answer(r, body.Bytes())
}

func (s *sink) answer(r *http.Request, body []byte) (*http.Response, error) {
	res := &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: http.NoBody, Request: r}
	switch comp := r.URL.Query().Get("comp"); {
	case r.Method == http.MethodGet:
		var from, to int64
		if _, err := fmt.Sscanf(r.Header.Get("X-Ms-Range"), "bytes=%d-%d", &from, &to); err != nil {
			return nil, err
		}
		res.StatusCode = http.StatusPartialContent
		res.Header.Set("Content-Length", fmt.Sprint(to-from+1))
		res.Body = io.NopCloser(s.generate(from, to-from+1))
	case r.Method != http.MethodPut:
		return nil, errors.New("not expected here: " + r.Method)
	case comp == "block":
		if s.has == nil {
			s.has = map[string]bool{}
		}
		s.has[r.URL.Query().Get("blockid")] = true
	case comp == "blocklist":
		var list struct{ Latest []string }
		if err := xml.Unmarshal(body, &list); err != nil {
			return nil, err
		}
		for _, id := range list.Latest {
			if !s.has[id] {
				return nil, errors.New("a block was named that never came")
			}
		}
	}
	if r.URL.Query().Get("comp") != "block" && r.Method == http.MethodPut {
		s.etag++
	}
	res.Header.Set("ETag", fmt.Sprintf(`"%d"`, s.etag))
	return res, nil
}
