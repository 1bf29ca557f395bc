package blocks

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// randomLayout returns a layout of ranges of a body of so many bytes, as saves make them, and the
// state.
func randomLayout(random *rand.Rand, body []byte) (l Layout, state []byte) {
	for range 1 + random.IntN(100) {
		length := 1 + random.IntN([]int{100, 4096, 40_000}[random.IntN(3)])
		at := random.IntN(len(body) - length)
		if n := len(l.ranges); n > 0 && random.IntN(2) == 0 { // continue the one before the last
			before := l.ranges[max(0, n-2)]
			at = min(int(before.at+before.length)+4096*random.IntN(2), len(body)-length)
		}
		l.add(bodyRange{int64(at), int64(length)})
		state = append(state, body[at:at+length]...)
	}
	return l, state
}

// TestLayoutRead: a part of a state with a random layout is read right, by few calls. No call reads
// more than the part or a buffer.
func TestLayoutRead(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	body := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(body) // it never returns an error
	for range 50 {
		written, state := randomLayout(random, body)
		l, err := ParseLayout(written.encode(), int64(len(body)), int64(len(state)))
		if err != nil {
			t.Fatal(err)
		}
		from := random.IntN(len(state))
		part := make([]byte, 1+random.IntN(len(state)-from))
		var calls atomic.Int64
		err = l.Read(part, int64(from), 1+random.IntN(4), func(data []byte, at int64) error {
			if calls.Add(1); len(data) > max(len(part), maxRun) {
				t.Errorf("a call reads %d bytes for %d", len(data), len(part))
			}
			copy(data, body[at:at+int64(len(data))])
			return nil
		})
		if err != nil || !bytes.Equal(part, state[from:from+len(part)]) {
			t.Fatalf("Read of %d bytes at %d of %d = %v, or other bytes", len(part), from, len(state), err)
		}
		if most := len(l.slice(int64(from), int64(len(part)))); int(calls.Load()) > most {
			t.Errorf("%d calls for %d ranges", calls.Load(), most)
		}
	}
}

// Pages that were changed between unchanged ones are read by two calls.
func TestLayoutReadsNeighboursTogether(t *testing.T) {
	body := make([]byte, 2<<20)
	for i := range body {
		body[i] = byte(i >> 12)
	}
	var l Layout
	for page := range int64(256) {
		at := page * Page
		if page%9 == 4 {
			at = 1<<20 + page/9*Page
		}
		l.add(bodyRange{at, Page})
	}
	calls, part := 0, make([]byte, 1<<20)
	err := l.Read(part, 0, 1, func(data []byte, at int64) error {
		calls++
		copy(data, body[at:])
		return nil
	})
	if err != nil || calls != 2 || part[4*Page] != body[1<<20] || part[5*Page] != body[5*Page] || part[13*Page] != body[1<<20+Page] {
		t.Errorf("%d calls, %v, want 2 and the state", calls, err)
	}
}

// FuzzParseLayout: no bytes make a layout that leaves its body, or has another size than the state.
func FuzzParseLayout(f *testing.F) {
	f.Add([]byte{}, int64(0), int64(0))
	f.Add([]byte{5, 2, 3, 4}, int64(20), int64(8))
	f.Add([]byte{0x80}, int64(20), int64(8))
	f.Add(bytes.Repeat([]byte{0xff}, 30), int64(1<<62), int64(1<<62))
	var l Layout
	l.add(bodyRange{100, 50})
	l.add(bodyRange{0, 70})
	f.Add(l.encode(), int64(150), int64(120))
	f.Add(l.encode(), int64(149), int64(120))
	f.Add(l.encode(), int64(150), int64(121))
	f.Fuzz(func(t *testing.T, data []byte, body, size int64) {
		if body < 0 || size < 0 || body > 1<<53 || size > 1<<53 {
			return
		}
		l, err := ParseLayout(data, body, size)
		if err != nil {
			return
		}
		total := int64(0)
		for i, r := range l.ranges {
			if r.at < 0 || r.length <= 0 || r.at+r.length > body || l.starts[i] != total {
				t.Fatalf("range %d is %d bytes at %d of a body of %d", i, r.length, r.at, body)
			}
			total += r.length
		}
		if total != size {
			t.Fatalf("the layout has %d bytes, want %d", total, size)
		}
	})
}
