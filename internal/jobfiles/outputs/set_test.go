package outputs

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// TestLimitsCountWhatIsThere: a replaced file and a removed one count no longer, so that their
// room, names and folders are free.
func TestLimitsCountWhatIsThere(t *testing.T) {
	store, server, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, Limits{Files: 2, Bytes: 10}, "", nil)
	for range 3 {
		send(t, s, "d/e/a", "12345")
	}
	send(t, s, "b", "12345")
	sent := server.Counts()[storage.OpPutBlob]
	for path, size := range map[string]int64{"c": 0, "b": 6} {
		if _, err := s.Send(t.Context(), path, size, strings.NewReader("123456")); !errors.Is(err, paths.ErrRefused) {
			t.Errorf("Send of %s beyond the limits = %v, want a refusal", path, err)
		}
	}
	if n := server.Counts()[storage.OpPutBlob]; n != sent {
		t.Errorf("refused files took %d calls, want none", n-sent)
	}
	s.Remove("d/e/a")
	s.Remove("none")
	if _, there := s.Get("d/e/a"); there || len(s.Files()) != 1 {
		t.Errorf("files after a removal = %v, want b alone", s.Files())
	}
	send(t, s, "d/e", "12345") // where a folder was
	if _, err := s.Send(t.Context(), "b", -1, strings.NewReader("12345")); err != nil {
		t.Errorf("Send of a file of unknown size that fits = %v", err)
	}
	if got := s.Sent(); got != (Sent{Files: 6, Bytes: 30}) {
		t.Errorf("Sent = %+v, want 6 files with 30 bytes", got)
	}
}

// TestNamesFitIntoTheList: the names of a job's files have room in one list, and a removed file's
// name makes room again.
func TestNamesFitIntoTheList(t *testing.T) {
	store, _, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	send(t, s, "d/one", "1")
	own := s.listed
	s.listed = maxManifest - listedBytes("two")
	send(t, s, "two", "2")
	if _, err := s.Send(t.Context(), "x", 1, strings.NewReader("3")); !errors.Is(err, paths.ErrRefused) ||
		!strings.Contains(err.Error(), "too long for a list") {
		t.Errorf("Send of a file whose name has no room = %v, want a refusal", err)
	}
	s.Remove("two")
	if s.Remove("d/one"); s.listed != maxManifest-listedBytes("two")-own {
		t.Errorf("room of the names left = %d, want that of none", s.listed)
	}
}

// TestRemovalIsRecorded: a removal changes the list.
func TestRemovalIsRecorded(t *testing.T) {
	store, server, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	if s.Unrecorded() {
		t.Error("a new set is unrecorded")
	}
	send(t, s, "x", "1")
	first, err := s.Record(t.Context())
	if err != nil || s.Ref() != first || s.Ref().Files != 1 {
		t.Fatalf("Record = %+v, %v", first, err)
	}
	s.Remove("x")
	if !s.Unrecorded() {
		t.Error("a removal is recorded before the list is")
	}
	if _, err := s.Open(t.Context(), "x"); !errors.Is(err, errNone) {
		t.Errorf("Open of a removed file = %v, want that there is none", err)
	}
	if second, err := s.Record(t.Context()); err != nil || second != (Ref{}) {
		t.Errorf("Record = %+v, %v, want no list", second, err)
	}
	send(t, s, "x", "2")
	refuse(server, storage.OpPutBlob)
	if ref, err := s.Record(t.Context()); err == nil || !s.Unrecorded() || ref != (Ref{}) {
		t.Errorf("Record without access = %+v, %v, unrecorded %t, want an error and nothing recorded", ref, err, s.Unrecorded())
	}
}

// TestMemoryOfUploads: the memory of an upload is free again after it, and a caller that gives up
// waits for none.
func TestMemoryOfUploads(t *testing.T) {
	store, _, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	for range 20 {
		if _, err := s.Send(t.Context(), "x", -1, strings.NewReader("1")); err != nil {
			t.Fatal(err)
		}
	}
	if !store.memory.TryAcquire(transferMemory) {
		t.Fatal("memory of finished uploads is not free")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(os.ErrClosed)
	if _, err := s.Send(ctx, "x", 1, strings.NewReader("1")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Send of a caller that gave up = %v, want its cause", err)
	}
}
