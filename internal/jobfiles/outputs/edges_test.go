package outputs

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// isList reports whether a call writes a list of files.
func isList(c storage.Call) bool {
	return c.Operation == storage.OpPutBlob && strings.Contains(c.Blob, "/manifest-")
}

// whileListed calls do once while a list of files is written.
func whileListed(server *storage.Server, do func()) {
	var once sync.Once
	server.OnCall(func(c storage.Call) storage.Fault {
		if isList(c) {
			once.Do(do)
		}
		return storage.Fault{}
	})
}

// TestLostAnswerToTheListIsSuccess: the SDK repeats the write of a list whose answer was lost,
// and meets its own blob.
func TestLostAnswerToTheListIsSuccess(t *testing.T) {
	store, server, _ := testContainer(t)
	var once sync.Once
	server.OnCall(func(c storage.Call) (f storage.Fault) {
		if isList(c) {
			once.Do(func() { f.DropReply = true })
		}
		return f
	})
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	send(t, s, "x", "content")
	ref, err := s.Record(t.Context())
	if err != nil || ref.Files != 1 || s.Unrecorded() {
		t.Fatalf("Record after a lost answer = %+v, %v; unrecorded %t, want it recorded", ref, err, s.Unrecorded())
	}
	if got := contents(t, store, "j", ref)["x"]; got != "content" {
		t.Errorf("output = %q, want content", got)
	}
}

// TestFileSentWhileTheListIsWritten: the next list has the file.
func TestFileSentWhileTheListIsWritten(t *testing.T) {
	store, server, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	send(t, s, "before", "1")
	whileListed(server, func() { send(t, s, "meanwhile", "2") })
	first, err := s.Record(t.Context())
	if err != nil || first.Files != 1 || !s.Unrecorded() {
		t.Fatalf("Record = %+v, %v; unrecorded %t, want one file, and the other unrecorded", first, err, s.Unrecorded())
	}
	second, err := s.Record(t.Context())
	if err != nil || second.Files != 2 || s.Unrecorded() || s.Ref() != second {
		t.Fatalf("second Record = %+v, %v; unrecorded %t, want both files", second, err, s.Unrecorded())
	}
	if got := contents(t, store, "j", second)["meanwhile"]; got != "2" {
		t.Errorf("output that was sent while the list was written = %q, want 2", got)
	}
}

// TestRemoveOnlyWhatWasListed: a blob that was replaced since the listing is left alone.
func TestRemoveOnlyWhatWasListed(t *testing.T) {
	store, server, c := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	send(t, s, "kept", "1")
	send(t, s, "removed", "2")
	var listed []Stored
	for b, err := range store.List(t.Context(), "j") {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, b)
	}
	kept, _ := s.Get("kept")
	if _, err := c.NewBlockBlobClient(kept.Blob("j")).UploadStream(t.Context(), bytes.NewReader([]byte("new")), nil); err != nil {
		t.Fatal(err)
	}
	for _, b := range listed {
		removed, err := store.Remove(t.Context(), b)
		if want := strings.HasSuffix(b.Name, "/removed"); err != nil || removed != want {
			t.Errorf("Remove of %s = %t, %v, want %t", b.Name, removed, err, want)
		}
	}
	if left := server.Blobs("outputs"); len(left) != 1 || left[0].Name != kept.Blob("j") {
		t.Errorf("blobs left = %v, want the replaced one alone", left)
	}
	if removed, err := store.Remove(t.Context(), listed[1]); err != nil || removed {
		t.Errorf("Remove of a blob that is gone = %t, %v, want false without an error", removed, err)
	}
}
