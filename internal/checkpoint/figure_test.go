package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/cost"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestGigabyte is promise 7 for large states, in figures: of a state of 1 GiB with 1 %
// changed, about 1 % is sent; and neither saving nor restoring it takes more memory than
// the blocks in flight.
func TestGigabyte(t *testing.T) {
	proof.Only(t, "it hashes 3 GiB")
	const size = 1 << 30
	service := &cost.Sink{Generate: generated{size: size}.reader, Latency: 5 * time.Millisecond}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: storage.New(storage.Options{}).ConnectionString(), Transport: service})
	if err != nil {
		t.Fatal(err)
	}
	c := NewStore(account.Container(recordsName)).Fresh(ours, "worker-1")

	first := service.Measure(func() error { return c.Save(t.Context(), generated{size: size}.snapshot()) })
	first.Log(t, "first save of 1 GiB")
	if first.Err != nil || first.Sent < size {
		t.Fatalf("first save sent %d bytes, %v, want all of it", first.Sent, first.Err)
	}

	// One percent in one piece, which touches as many chunks as it can.
	next := generated{size: size, from: 333*blocks.Unit - blocks.Unit/10, to: 333*blocks.Unit - blocks.Unit/10 + size/100}
	second := service.Measure(func() error { return c.Save(t.Context(), next.snapshot()) })
	second.Log(t, "second save of 1 GiB")
	if limit := int64(size/1000*11 + 1<<20); second.Err != nil || second.Sent > limit || second.Sent < size/100 {
		t.Errorf("second save sent %d bytes, %v, want the changed 1%%, and no more than %d", second.Sent, second.Err, limit)
	}

	service.Generate = next.reader
	restored := service.Measure(func() error { return readGenerated(t.Context(), c) })
	restored.Log(t, "restore of 1 GiB")
	if restored.Err != nil {
		t.Errorf("restore = %v, want the state", restored.Err)
	}

	for what, m := range map[string]cost.Measured{"first save": first, "second save": second, "restore": restored} {
		if limit := uint64(64 << 20); m.Heap > limit {
			t.Errorf("%s: the heap grew by %d bytes, want no more than %d", what, m.Heap, limit)
		}
	}
}

// readGenerated reads the recorded state to its end and checks its length; the
// reader itself checks its bytes.
func readGenerated(ctx context.Context, c *Claim) error {
	r, err := c.OpenState(ctx)
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

// generated is a state that is not kept in memory. Its pages of 64 KiB all differ. A run
// of it may be changed.
type generated struct{ size, from, to int64 }

const page = 64 << 10

var filler = bytes.Repeat([]byte("0123456789abcdef"), page/16)

func (g generated) snapshot() Snapshot {
	return Snapshot{Stream: func() (io.ReadCloser, error) { return io.NopCloser(g.reader(0, g.size)), nil }}
}

// reader reads so many bytes from an offset, which is a whole number of pages.
func (g generated) reader(offset, count int64) io.Reader {
	return &generator{state: g, next: offset, end: offset + count}
}

type generator struct {
	state     generated
	next, end int64
}

// Read implements [io.Reader]. The number of the page stands at its start, and changed
// pages are inverted.
func (g *generator) Read(p []byte) (int, error) {
	if g.next == g.end {
		return 0, io.EOF
	}
	at := g.next % page
	p = p[:min(int64(len(p)), page-at, g.end-g.next)]
	copy(p, filler[at:])
	if at == 0 && len(p) >= 8 {
		binary.BigEndian.PutUint64(p, uint64(g.next/page))
	}
	from, to := max(g.state.from-g.next, 0), min(g.state.to-g.next, int64(len(p)))
	for i := from; i < to; i++ {
		p[i] ^= 0xff
	}
	g.next += int64(len(p))
	return len(p), nil
}
