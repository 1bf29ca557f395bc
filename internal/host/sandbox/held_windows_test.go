package sandbox

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRemovalWaitsForAScanner removes a folder in which another handle is open for a
// while, as a virus scanner's.
func TestRemovalWaitsForAScanner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := os.Create(filepath.Join(dir, "a", "b", "file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(held.Name()); !IsHeld(err) {
		t.Fatalf("removing an open file = %v, want that it is held", err)
	}
	time.AfterFunc(time.Second, func() { _ = held.Close() })
	if err := RemoveTree(dir); err != nil {
		t.Errorf("RemoveTree of a folder that was held for a second = %v", err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder after its removal = %v, want that it is gone", err)
	}
}
