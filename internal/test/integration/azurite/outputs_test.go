//go:build integration

package azurite_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/integration/azurite"
)

// TestOutputs: files of two deliveries, some in blocks and some with a name that must be
// encoded, are listed, downloaded and removed at Azurite as at the emulator.
func TestOutputs(t *testing.T) {
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: azurite.Start(t)})
	if err != nil {
		t.Fatal(err)
	}
	files := account.Container("outputs")
	if _, err := files.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	store, limits := outputs.NewStore(files), outputs.Limits{Files: 10, Bytes: 1 << 30}
	const id = "job-1"
	large := bytes.Repeat([]byte("0123456789abcdef"), 600_000) // three blocks
	send := func(s *outputs.Set, path string, content []byte) {
		t.Helper()
		if _, err := s.Send(t.Context(), path, int64(len(content)), io.NopCloser(bytes.NewReader(content))); err != nil {
			t.Fatal(err)
		}
	}
	record := func(s *outputs.Set) outputs.Ref {
		t.Helper()
		ref, err := s.Record(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}

	first := store.NewSet(id, 1, "11111111-2222-4333-8444-555555555555", limits, "", nil)
	send(first, "a b+ü%.txt", []byte("old"))
	send(first, "deep/large.bin", large)
	send(first, "empty", nil)
	ref := record(first)

	// The next delivery replaces one file and keeps the others.
	known, err := store.Files(t.Context(), id, ref.Hash)
	if err != nil || len(known) != 3 {
		t.Fatalf("Files = %+v, %v, want three", known, err)
	}
	second := store.NewSet(id, 2, "66666666-2222-4333-8444-555555555555", limits, ref.Hash, known)
	send(second, "a b+ü%.txt", []byte("new"))
	ref = record(second)
	if known, err = store.Files(t.Context(), id, ref.Hash); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := store.Download(t.Context(), id, known, dir, nil); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{"a b+ü%.txt": []byte("new"), "deep/large.bin": large, "empty": {}} {
		if got, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path))); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes, %v, want %d", path, len(got), err, len(want))
		}
	}

	// Blobs that the record does not name can be removed: the file and the list of before.
	named, err := store.Named(t.Context(), id, ref.Hash)
	if err != nil {
		t.Fatal(err)
	}
	removed := 0
	for b, err := range store.List(t.Context(), id) {
		if err != nil {
			t.Fatal(err)
		}
		if named[b.Name] {
			continue
		}
		if ok, err := store.Remove(t.Context(), b); err != nil || !ok {
			t.Errorf("Remove(%s) = %v, %v", b.Name, ok, err)
		}
		removed++
	}
	if removed != 2 {
		t.Errorf("%d blobs were not named, want 2", removed)
	}
	if err := store.Download(t.Context(), id, known, t.TempDir(), nil); err != nil {
		t.Errorf("after that: %v", err)
	}
}
