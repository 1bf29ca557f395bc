package control

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/blobs"
)

// write replaces the blob of the document with any content.
func write(t *testing.T, s *Store, content string) {
	t.Helper()
	if _, err := s.blobs.Put(t.Context(), blobName, []byte(content), blobs.Options{}); err != nil {
		t.Fatal(err)
	}
}

// content returns the content of a blob.
func content(t *testing.T, s *Store, name string) string {
	t.Helper()
	_, raw, err := s.blobs.Get(t.Context(), name, maxKept)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func pauseAll(d *Document, now time.Time) (bool, error) {
	changed := d.Pause == nil
	d.Pause = &Mark{At: now, By: "me"}
	return changed, nil
}

// TestRepair: a document that is none is an error that names the damage, also for Edit, and is
// replaced by Repair alone, which keeps it.
func TestRepair(t *testing.T) {
	for name, damaged := range map[string]string{
		"empty": "", "cut": golden[:200], "no JSON": "\x00\xff", "null": "null", "a list": "[]", "no version": "{}", "version 0": `{"v":0}`,
		"a wrong type": `{"v":1,"revision":7,"drain":3}`, "a wrong time": `{"v":1,"check_all":"today"}`, "two documents": golden + golden,
		"too long": golden + strings.Repeat(" ", maxBody),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, server *storage.Server, store *Store) {
				write(t, store, damaged)
				if _, changed, err := store.Read(t.Context(), ""); !errors.As(err, new(*DamagedError)) || errors.Is(err, ErrNewer) || changed {
					t.Fatalf("Read = %t, %v, want a DamagedError", changed, err)
				}
				if _, err := store.Edit(t.Context(), pauseAll); !errors.As(err, new(*DamagedError)) || content(t, store, blobName) != damaged {
					t.Fatalf("Edit = %v, want a DamagedError and the blob unchanged", err)
				}
				refused := errors.New("not drained")
				if _, _, err := store.Repair(t.Context(), func(*Document, time.Time) (bool, error) { return false, refused }); !errors.Is(err,
					refused) || content(t, store, blobName) != damaged {
					t.Fatalf("Repair with a refused change = %v, want its error and the blob unchanged", err)
				}
				began := time.Now()
				d, kept, err := store.Repair(t.Context(), pauseAll)
				if err != nil || !strings.HasPrefix(kept, "control.damaged-") || content(t, store, kept) != damaged {
					t.Fatalf("Repair = %q, %v, want the damaged document kept", kept, err)
				}
				found, _, err := store.Read(t.Context(), "")
				if err != nil || found.Document.Pause == nil || found.Document.Revision != d.Revision || int64(d.Revision) <= began.Unix() {
					t.Errorf("document = %+v, %v, want it paused, with a revision from the clock", found.Document, err)
				}
				if at := found.Document; at.CancelledAt("any").Before(began) || !at.MustCheck(began) {
					t.Errorf("document = %+v, want every job checked", at)
				}
				again, kept, err := store.Repair(t.Context(), pauseAll)
				if err != nil || kept != "" || again.Revision != d.Revision {
					t.Errorf("Repair again = %+v, %q, %v, want no change", again, kept, err)
				}
			})
		})
	}
}

// TestRepairLeavesNewerAlone: a document of a newer version is not damaged.
func TestRepairLeavesNewerAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *storage.Server, store *Store) {
		const newer = `{"v":2,"pause":[]}`
		write(t, store, newer)
		if _, _, err := store.Repair(t.Context(), pauseAll); !errors.Is(err, ErrNewer) || content(t, store, blobName) != newer {
			t.Errorf("Repair = %v, want ErrNewer and the blob unchanged", err)
		}
	})
}

// TestRevisionAfterRepair: it never goes back, also if documents were repaired before.
func TestRevisionAfterRepair(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *storage.Server, store *Store) {
		write(t, store, `{"v":1,"revision":99999999999,"pause":`)
		if d, _, err := store.Repair(t.Context(), pauseAll); err != nil || d.Revision != 100000000000 {
			t.Errorf("Repair = revision %d, %v, want the next one", d.Revision, err)
		}
	})
}

// TestRepairInterrupted: if any call fails, the damaged document is still there under one
// name, and a repetition repairs it.
func TestRepairInterrupted(t *testing.T) {
	for fails := range 4 {
		inBubble(t, func(t *testing.T, server *storage.Server, store *Store) {
			write(t, store, golden[:100])
			calls := 0
			server.OnCall(func(storage.Call) storage.Fault {
				if calls++; calls == fails+1 {
					return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
				}
				return storage.Fault{}
			})
			if _, kept, err := store.Repair(t.Context(), pauseAll); err == nil || kept != "" {
				t.Errorf("Repair with call %d refused = %q, %v, want an error", fails+1, kept, err)
			}
			server.OnCall(nil)
			if got := content(t, store, blobName); got != golden[:100] {
				t.Errorf("after call %d was refused: %q, want the damaged document", fails+1, got)
			}
			if _, kept, err := store.Repair(t.Context(), pauseAll); err != nil || content(t, store, kept) != golden[:100] {
				t.Errorf("repeated Repair = %q, %v, want it repaired", kept, err)
			}
		})
	}
}

// TestRepairsAtOnce: of several operators who repair it at once, and change different
// things, each has its change.
func TestRepairsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *storage.Server, store *Store) {
		write(t, store, "{")
		var all sync.WaitGroup
		names := []string{"vm-0", "vm-1", "vm-2"}
		for _, name := range names {
			all.Go(func() {
				_, _, err := store.Repair(context.Background(), func(d *Document, now time.Time) (bool, error) {
					if d.Drains == nil {
						d.Drains = map[string]Mark{}
					}
					d.Drains[name] = Mark{At: now}
					return true, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		found, _, err := store.Read(t.Context(), "")
		if err != nil || len(found.Document.Drains) != len(names) {
			t.Errorf("document = %+v, %v, want every change", found.Document, err)
		}
	})
}

// FuzzDocument: any content of the blob is a document, a newer one, or damaged.
func FuzzDocument(f *testing.F) {
	f.Add([]byte(golden))
	f.Add([]byte(`{"v":"1"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var d Document
		if err := d.UnmarshalJSON(raw); err != nil {
			_ = revisionIn(raw)
			return
		}
		again, err := d.MarshalJSON()
		if err != nil || !bytes.Contains(again, []byte(`"v":1`)) {
			t.Fatalf("document %q is written as %q, %v", raw, again, err)
		}
	})
}
