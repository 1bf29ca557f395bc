package chunks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// random returns the random bytes of a seed.
func random(seed byte, n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(p) // it never returns an error
	return p
}

// ends returns where the chunks and the groups of a stream end, which the cutter gets in
// pieces of at most that many bytes.
func ends(c *Cutter, data []byte, piece int) (chunks, groups []int) {
	at := 0
	for at < len(data) {
		n, end := c.Next(data[at:min(at+piece, len(data))])
		at += n
		if end >= Chunk {
			chunks = append(chunks, at)
		}
		if end == Group {
			groups = append(groups, at)
		}
	}
	return chunks, groups
}

// The cuts must not change by accident: everything that is stored would be sent again.
func TestCutsStayTheSame(t *testing.T) {
	chunks, groups := ends(New(), random(1, 2<<20), 1<<20)
	if got, want := fmt.Sprint(chunks, groups), "[218220 401188 616111 825628 1093709 1403607 1927895] [825628]"; got != want {
		t.Errorf("a fixed stream is cut at %s, want %s", got, want)
	}
}

// Where a stream is cut depends on its content alone, not on the pieces it comes in.
func TestAnyPieces(t *testing.T) {
	data := random(2, 6<<20)
	chunks, groups := ends(New(), data, len(data))
	for _, piece := range []int{1, 63, 4096, 1 << 20} {
		c, g := ends(New(), data, piece)
		if !slices.Equal(c, chunks) || !slices.Equal(g, groups) {
			t.Errorf("in pieces of %d bytes it is cut at %v, %v, want %v, %v", piece, c, g, chunks, groups)
		}
	}
}

// Chunks and groups keep to their sizes, on average too, for any content.
func TestSizes(t *testing.T) {
	for name, data := range map[string][]byte{"random": random(3, 64<<20), "zeros": make([]byte, 8<<20)} {
		chunks, groups := ends(New(), data, 1<<20)
		at := 0
		for _, end := range chunks {
			if n := end - at; n < 128<<10 || n > 512<<10 {
				t.Errorf("%s: a chunk has %d bytes, want 128 to 512 KiB", name, n)
			}
			at = end
		}
		at = 0
		for _, end := range groups {
			if n := end - at; n > maxGroup {
				t.Errorf("%s: a group has %d bytes, want 2 MiB at most", name, n)
			}
			if !slices.Contains(chunks, end) {
				t.Errorf("%s: a group ends at %d, within a chunk", name, end)
			}
			at = end
		}
		if name == "random" {
			average, perGroup := len(data)/len(chunks)>>10, float64(len(chunks))/float64(len(groups))
			t.Logf("chunks have %d KiB on average, groups %.1f chunks", average, perGroup)
			if average < 220 || average > 280 || perGroup < 3.2 || perGroup > 4.4 {
				t.Errorf("chunks have %d KiB on average, groups %.1f chunks, want some 252 and 4", average, perGroup)
			}
		}
	}
}

// A state of the largest size fits into the blocks of a blob, even if each chunk has its
// least size. Chunks grow at the offsets of the table.
func TestLargestState(t *testing.T) {
	var from, most int64
	for _, s := range sizes(1 << 20) {
		most += (s.before - from) / int64(s.least)
		from = s.before
		if s.most > MaxBlock {
			t.Errorf("chunks below %d have up to %d bytes, more than a block", s.before, s.most)
		}
	}
	if from != 32<<30 || most > 50_000 {
		t.Errorf("the sizes reach to %d bytes, with up to %d chunks, want 32 GiB and at most 50,000", from, most)
	}
	for _, row := range []struct {
		at          int64
		least, most int
	}{{0, 128 << 10, 512 << 10}, {1<<30 - 1, 128 << 10, 512 << 10}, {1 << 30, 512 << 10, 2 << 20}, {8 << 30, 1 << 20, 4 << 20},
		{40 << 30, 1 << 20, 4 << 20}} {
		c := New()
		c.offset = row.at
		c.endChunk(true)
		if s := c.sizes[0]; s.least != row.least || s.most != row.most {
			t.Errorf("a chunk at %d has %d to %d bytes, want %d to %d", row.at, s.least, s.most, row.least, row.most)
		}
	}
}

// Behind an insertion the cuts are again the old content's, within a few chunks.
func TestInsertion(t *testing.T) {
	data := random(4, 16<<20)
	inserted := slices.Concat(data[:1<<20], random(5, 100), data[1<<20:])
	before, groupsBefore := ends(New(), data, 1<<20)
	after, groupsAfter := ends(New(), inserted, 1<<20)
	same := func(before, after []int) (n int) {
		for _, at := range after {
			if slices.Contains(before, at-100) && at > 1<<20 || slices.Contains(before, at) && at < 1<<20 {
				n++
			}
		}
		return n
	}
	if got := same(before, after); got < len(before)-3 {
		t.Errorf("%d of %d chunks end where they did, want all but 3", got, len(before))
	}
	if got := same(groupsBefore, groupsAfter); got < len(groupsBefore)-2 {
		t.Errorf("%d of %d groups end where they did, want all but 2", got, len(groupsBefore))
	}
}

func TestFixed(t *testing.T) {
	chunks, groups := ends(Fixed(1000), random(6, 3500), 700)
	if want := []int{1000, 2000, 3000}; !slices.Equal(chunks, want) || !slices.Equal(groups, want) {
		t.Errorf("chunks and groups of 1000 bytes end at %v, %v, want %v", chunks, groups, want)
	}
}

// Behind skipped bytes a stream is cut as from the start of a chunk and a group there.
func TestSkip(t *testing.T) {
	const scale = 1024
	data := make([]byte, 40*scale)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // it never returns an error
	for _, at := range []int{0, 100, 3000} {
		skipped := Scaled(scale)
		for before := data[:at]; len(before) > 0; {
			n, _ := skipped.Next(before)
			before = before[n:]
		}
		skipped.Skip(20 * scale)
		fresh := Scaled(scale)
		fresh.Skip(int64(at) + 20*scale)
		for rest := data; len(rest) > 0; {
			n, end := skipped.Next(rest)
			if m, want := fresh.Next(rest); n != m || end != want {
				t.Fatalf("skipped at %d, %d bytes from the end: %d bytes and %v, want %d and %v", at, len(rest), n, end, m, want)
			}
			rest = rest[n:]
		}
	}
}
