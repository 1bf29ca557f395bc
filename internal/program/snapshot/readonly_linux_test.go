package snapshot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/test/isolated"
)

// TestUnpackOddFolder: a program may have files whose names are no UTF-8, and may have taken
// away its own right to write to its folders. The snapshot is restored nevertheless, by a worker
// that is not root.
func TestUnpackOddFolder(t *testing.T) { isolated.RunAsWorker(t, unpackOddFolder) }

func unpackOddFolder(t *testing.T) {
	dir, job := t.TempDir(), t.TempDir()
	names := []string{"work/caf\xe9", "work/sub-\xff/b", "work/\xef\xbf\xbd", "work/plain"}
	for _, name := range names {
		fill(t, dir, "folder/"+name, name)
	}
	at := time.Unix(1_600_000_000, 123_000)
	modes := map[string]fs.FileMode{"work/caf\xe9": 0o640, "work/\xef\xbf\xbd": 0o604, "work/sub-\xff": 0o500, "work": 0o555}
	all := append([]string{"work/sub-\xff", "work"}, names...)
	set := func(modeOf func(name string) fs.FileMode, at time.Time) {
		t.Helper()
		for _, name := range all {
			at, mode := at, modeOf(name)
			file := filepath.Join(dir, "folder", name)
			if err := errors.Join(os.Chtimes(file, at, at), os.Chmod(file, mode)); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantMode := func(name string) fs.FileMode {
		if mode, ok := modes[name]; ok {
			return mode
		}
		return 0o600
	}
	set(wantMode, at)
	if err := writeAttributes(dir); err != nil {
		t.Fatal(err)
	}
	set(func(string) fs.FileMode { return 0o700 }, time.Now()) // as the archive leaves it
	to := filepath.Join(t.TempDir(), "work")
	t.Cleanup(func() { _ = errors.Join(sandbox.RemoveTree(job), sandbox.RemoveTree(to)) }) // also what may not be written
	if err := Unpack(dir, job); err != nil {
		t.Fatalf("Unpack = %v", err)
	}
	for _, name := range all {
		info, err := os.Lstat(filepath.Join(job, name))
		if err != nil || info.Mode().Perm() != wantMode(name) || !info.ModTime().Equal(at) {
			t.Errorf("%q = %v, %v, want mode %v of %v", name, info, err, wantMode(name), at)
		}
	}
	if err := move(filepath.Join(job, "work"), to); err != nil { // as for the last snapshot
		t.Errorf("move a folder that may not be written = %v", err)
	}
	if info, err := os.Lstat(to); err != nil || info.Mode().Perm() != modes["work"] {
		t.Errorf("the folder that was moved = %v, %v, want mode %v", info, err, modes["work"])
	}
}
