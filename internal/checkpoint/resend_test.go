package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/cost"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// history is the states that a program saves one after another.
type history struct {
	kind, change string
	states       func() [][]byte // takes seconds under the race detector
	atMost       float64         // MiB that the last save of a state of 32 MiB may send
}

// histories returns states of about that size as programs change them.
func histories(size int) []history {
	filled := func(seed uint64) func() []byte {
		return sync.OnceValue(func() []byte { data := make([]byte, size); fillRandom(data, seed); return data })
	}
	data, noise := filled(1), filled(4)
	once := sync.OnceValue(func() []byte { return insert(data(), 1<<20, 100) })
	twice := func() []byte { return insert(once(), 1<<20+5000, 100) }
	pages := sync.OnceValue(func() []byte { return writePages(slices.Clone(data()), 10, 1) })
	morePages := func() []byte { return writePages(slices.Clone(pages()), 10, 2) }
	changed := func(data []byte, seed uint64) []byte {
		return changePages(data, 4096, size/4096/100, rand.New(rand.NewPCG(seed, 0)))
	}
	memory := sync.OnceValue(func() []byte { return changed(data(), 1) })
	moreMemory := func() []byte { return changed(memory(), 2) }
	layer := func() []byte {
		trained := slices.Clone(data())
		fillRandom(trained[size/32*7:size/32*8], 3)
		return trained
	}
	log := func(size int) func() []byte { return func() []byte { return logOf(size) } }
	of := func(changed int) float64 { return float64(changed) / (1 << 20) }
	return []history{
		{"any", "the first save", inTurn(data), of(size) + 0.2},
		{"any", "100 bytes inserted near the start", inTurn(data, once), 1.6},
		{"any", "100 more, beside them", inTurn(data, once, twice), 0.5},
		{"any", "100 bytes inserted after a save that replaced all", inTurn(noise, data, once), 0.5},
		{"tar", "one file grown, one removed, one new", func() [][]byte { return tars(size) }, 4},
		{"log", "1 MiB appended", inTurn(log(size), log(size+1<<20)), 2},
		{"database", "10 pages of 4 KiB written in place", inTurn(data, pages), 8},
		{"database", "10 others, in the same tables", inTurn(data, pages, morePages), 3},
		{"memory", "1 % of the pages written", inTurn(data, memory), 0.45},
		{"memory", "1 % more of them", inTurn(data, memory, moreMemory), 0.45},
		{"model", "one layer of 32 trained", inTurn(data, layer), of(size/32) + 1.5},
		{"model", "all trained", inTurn(data, noise), of(size) + 0.2},
	}
}

// inTurn returns the states when they are asked for.
func inTurn(states ...func() []byte) func() [][]byte {
	return func() (all [][]byte) {
		for _, state := range states {
			all = append(all, state())
		}
		return all
	}
}

// tars returns an archive before and after a change of its files.
func tars(size int) [][]byte {
	files := newTree(size)
	before := files.tar()
	files.change()
	return [][]byte{before, files.tar()}
}

// insert returns data with n random bytes more at a place.
func insert(data []byte, at, n int) []byte {
	more := make([]byte, n)
	fillRandom(more, 2)
	return slices.Concat(data[:at], more, data[at:])
}

// writePages changes pages of 4 KiB in place, at random in the first quarter.
func writePages(data []byte, n int, seed uint64) []byte {
	random := rand.New(rand.NewPCG(seed, 0))
	for range n {
		at := random.IntN(len(data)/4/4096) * 4096
		fillRandom(data[at:at+4096], seed+100)
	}
	return data
}

// logOf returns lines of a log.
func logOf(size int) []byte {
	var b bytes.Buffer
	for n := 0; b.Len() < size; n++ {
		fmt.Fprintf(&b, "2026-03-09T12:%02d:%02d.%03dZ INFO step done step=%d loss=%.6f\n", n/60000%60, n/1000%60, n%1000, n, 1/float64(n+1))
	}
	return b.Bytes()[:size]
}

// tree is the files of an archive.
type tree [][]byte

func newTree(size int) *tree {
	random := rand.New(rand.NewPCG(1, 2))
	var files tree
	for total := 0; total < size; {
		file := make([]byte, 1000+random.IntN(300_000))
		fillRandom(file, uint64(len(files)))
		binary.BigEndian.PutUint64(file, uint64(len(files))) // seeds repeat
		files, total = append(files, file), total+len(file)
	}
	return &files
}

// change grows one file, removes one and adds one.
func (f *tree) change() {
	files, more := *f, make([]byte, 50_000)
	fillRandom(more, 777)
	files[10] = append(files[10], more[:10_000]...)
	*f = slices.Insert(slices.Delete(files, 40, 41), 80, more)
}

// tar returns the files in a row, each behind a block that names it and filled up to
// whole blocks.
func (f *tree) tar() []byte {
	var b bytes.Buffer
	for _, file := range *f {
		fmt.Fprintf(&b, "%-512s", fmt.Sprintf("checkpoint/part-%x %d", file[:8], len(file)))
		b.Write(file)
		b.WriteString(strings.Repeat("\x00", (512-len(file)%512)%512))
	}
	return b.Bytes()
}

// sent saves the states, and returns the cost of the last save.
func sent(t *testing.T, states [][]byte) (last cost.Measured) {
	t.Helper()
	service := &cost.Sink{}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: storage.New(storage.Options{}).ConnectionString(), Transport: service})
	must(t, err)
	store := NewStore(account.Container(recordsName))
	c := store.Fresh(ours, "worker-1")
	for _, state := range states {
		last = service.Measure(func() error { return c.Save(t.Context(), streamed(state)) })
		must(t, last.Err)
	}
	return last
}

// TestSentForAChange holds the bytes sent for a change of a state to the size of the
// change, where the rest only moved.
func TestSentForAChange(t *testing.T) {
	for _, h := range proof.Some(t, 1, histories(32<<20)) {
		m := sent(t, h.states())
		mib := float64(m.Sent) / (1 << 20)
		t.Logf("%s, %s: %.2f MiB sent in %d calls", h.kind, h.change, mib, m.Calls)
		if mib > h.atMost || m.Calls > int(1.2*h.atMost)+32 {
			t.Errorf("%s, %s: %.2f MiB sent in %d calls, want at most %.2f, and about one for each", h.kind, h.change, mib, m.Calls, h.atMost)
		}
	}
}

// fillRandom fills p with the random bytes of a seed.
func fillRandom(p []byte, seed uint64) {
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(p) // it never returns an error
}
