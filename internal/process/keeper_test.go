package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/archive"
)

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	return &keeper{from: filepath.Join(t.TempDir(), "checkpoint"), dir: t.TempDir(), limits: roomy}
}

// save puts a file where a program would.
func (k *keeper) save(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(k.from, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (k *keeper) left(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestTake: small checkpoints come as bytes, so that a drain can send them
// first; large ones as files that nobody writes any more.
func TestTake(t *testing.T) {
	k := newKeeper(t)
	if p, err := k.take(); p != nil || err != nil {
		t.Errorf("take of nothing = %+v, %v, want nothing", p, err)
	}
	for _, size := range []int{0, 1, smallState, smallState + 1, 3 << 20} {
		text := strings.Repeat("x", size)
		k.save(t, text)
		p, err := k.take()
		if err != nil || p.Version != stateFile || (p.Stream == nil) != (size <= smallState) {
			t.Fatalf("take of %d bytes = %+v, %v", size, p, err)
		}
		if got := stateOf(t, p); got != text || !p.HasState() {
			t.Errorf("state of %d bytes has %d", size, len(got))
		}
		if p, err := k.take(); p != nil || err != nil {
			t.Errorf("the same taken twice = %+v, %v, want nothing", p, err)
		}
		if want := min(1, size/(smallState+1)); k.left(t) != want {
			t.Errorf("after %d bytes %d checkpoints are kept, want %d", size, k.left(t), want)
		}
	}
}

// TestKeptWhileRead: a checkpoint is removed when a later one has taken its
// place, but not under the hands of who reads it.
func TestKeptWhileRead(t *testing.T) {
	k := newKeeper(t)
	first, second := strings.Repeat("1", 100_000), strings.Repeat("2", 100_000)
	k.save(t, first)
	p, err := k.take()
	if err != nil {
		t.Fatal(err)
	}
	reader, err := p.Stream()
	if err != nil {
		t.Fatal(err)
	}
	k.save(t, second)
	if _, err := k.take(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(reader); string(got) != first || err != nil {
		t.Errorf("what was being read has %d bytes, %v, want it whole", len(got), err)
	}
	if got := k.left(t); got != 2 {
		t.Errorf("%d checkpoints are kept while one is read, want 2", got)
	}
	if _, err := p.Stream(); !errors.Is(err, errSuperseded) {
		t.Errorf("opening it again = %v, want errSuperseded", err)
	}
	for range 2 { // closing twice changes nothing
		_ = reader.Close()
	}
	if got := k.left(t); got != 1 {
		t.Errorf("%d checkpoints are kept after it was read, want 1", got)
	}
}

// TestTakeFolder: what is renamed into place is not reached by its old name.
func TestTakeFolder(t *testing.T) {
	k := newKeeper(t)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for name, data := range map[string][]byte{"large": large, "sub/small": []byte("s")} {
		full := filepath.Join(k.from, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o700), os.WriteFile(full, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := k.take()
	if err != nil || p.Version != stateFolder || p.Stream == nil {
		t.Fatalf("take = %+v, %v, want a folder as a stream", p, err)
	}
	stream, err := p.Stream()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	back := t.TempDir()
	if err := archive.Extract(stream, back, roomy); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(back, "large")); !bytes.Equal(got, large) {
		t.Errorf("a file came back with %d bytes, %v, want %d", len(got), err, len(large))
	}
}
