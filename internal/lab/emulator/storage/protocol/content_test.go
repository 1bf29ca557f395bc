package protocol

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/link"
)

func TestContentReader(t *testing.T) {
	c := NewContent([]byte("012"), []byte("34"), nil, []byte("567"), []byte("89"), nil)
	const all = "0123456789"
	for from := range int64(len(all) + 1) {
		for to := from; to <= int64(len(all)); to++ {
			at := Range{Offset: from, Count: to - from}
			body := &liveBody{ctx: t.Context(), reply: &Reply{Body: c.Read(at), Flow: new(link.Pipe).Flow(0)}}
			if err := iotest.TestReader(body, []byte(all[from:to])); err != nil {
				t.Errorf("reading %+v: %v", at, err)
			}
			var out bytes.Buffer
			if _, err := c.Read(at).WriteTo(&out); err != nil || out.String() != all[from:to] {
				t.Errorf("writing %+v = %q, %v, want %q", at, out.String(), err, all[from:to])
			}
		}
	}
}

func TestRangedReadCopiesNothing(t *testing.T) {
	data := make([]byte, 64<<20)
	c := NewContent(data, data)
	allocated := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			_, _ = c.Read(Range{Offset: 1 << 20, Count: 100 << 20}).WriteTo(io.Discard)
		}
	}).AllocedBytesPerOp()
	if allocated > 1<<10 {
		t.Errorf("a read of 100 MiB allocated %d bytes, want next to nothing", allocated)
	}
}
