package spill

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestSorter: all records, in memory and on disk, come in the order of their keys, and
// none is lost.
func TestSorter(t *testing.T) {
	proof.Check(t, func(r *rapid.T) {
		memory := rapid.SampledFrom([]int{1, 10, 100, 1 << 20}).Draw(r, "memory")
		keys := rapid.SliceOfDistinct(rapid.StringN(0, 20, 80), func(s string) string { return s }).Draw(r, "keys")
		s := NewSorter(t.TempDir(), memory)
		defer func() { _ = s.Close() }()
		for _, key := range keys {
			if err := s.Add([]byte(key), []byte("of "+key)); err != nil {
				r.Fatal(err)
			}
		}
		sorted, err := s.Sorted()
		if err != nil {
			r.Fatal(err)
		}
		var got []string
		for {
			key, value, err := sorted.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || string(value) != "of "+string(key) {
				r.Fatalf("record %q = %q, %v", key, value, err)
			}
			got = append(got, string(key))
		}
		slices.Sort(keys)
		if !slices.Equal(got, keys) {
			r.Fatalf("keys %q, want %q", got, keys)
		}
	})
}

// TestBuffer: all that was written is read, wherever it is and in parts of any size.
func TestBuffer(t *testing.T) {
	proof.Check(t, func(r *rapid.T) {
		dir := t.TempDir()
		b := NewBuffer(dir, rapid.IntRange(1, 40).Draw(r, "memory"))
		var want []byte
		for _, part := range rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 30)).Draw(r, "parts") {
			if n, err := b.Write(part); n != len(part) || err != nil {
				r.Fatalf("Write = %d, %v", n, err)
			}
			want = append(want, part...)
		}
		from := rapid.IntRange(0, len(want)).Draw(r, "from")
		size := rapid.IntRange(0, len(want)-from).Draw(r, "size")
		got, err := io.ReadAll(b.Reader(int64(from), int64(size), 16))
		if err != nil || !bytes.Equal(got, want[from:from+size]) || b.Size() != int64(len(want)) {
			r.Fatalf("%d bytes from %d of %d = %q, %v, want %q", size, from, b.Size(), got, err, want[from:from+size])
		}
		if n, err := b.ReadAt(make([]byte, len(want)+1), 0); n != len(want) || !errors.Is(err, io.EOF) {
			r.Fatalf("ReadAt over the end = %d, %v, want %d, %v", n, err, len(want), io.EOF)
		}
		if err := b.Close(); err != nil {
			r.Fatal(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			r.Fatalf("%v is left, %v", left, err)
		}
	})
}
