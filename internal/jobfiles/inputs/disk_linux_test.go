package inputs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/test/isolated"
	"github.com/spotworker/spotworker/job"
)

// TestDiskFillsDuringAFetch: others fill the disk while a job's inputs are downloaded. The
// job is interrupted by an error that names the disk, nothing of a download is left that
// counts as a file, and the files come whole as soon as there is room.
func TestDiskFillsDuringAFetch(t *testing.T) {
	isolated.WithDisk(t, spareSpace+32<<20, func(t *testing.T, disk string) {
		b := setup(t)
		b.folder = filepath.Join(disk, "inputs")
		large := content(3*rangeLength + 5)
		b.put(t, "large", large)
		b.put(t, "small", content(10))
		f := b.fetcher(t, nil)
		small := mustFetch(t, f, job.Input{Container: "data", Blob: "small"})
		var free func()
		fill := sync.OnceFunc(func() { free = isolated.FillDisk(t, disk, rangeLength) })
		b.mu.Lock()
		b.called = func(operation string) {
			if operation == "GetBlob" {
				fill()
			}
		}
		b.mu.Unlock()
		held, err := fetch(t, f, job.Input{Container: "data", Blob: "large"})
		if held != nil || !errors.Is(err, unix.ENOSPC) || !job.IsUnavailable(err) || !IsNoSpace(err) || !strings.Contains(err.Error(), disk) {
			t.Errorf("Fetch on a disk that fills = %+v, %v, want an interruption that names %s", held, err, disk)
		}
		if left := filesIn(t, b.folder, 100); len(left) > 0 {
			t.Errorf("files %v are left of a download, want none", left)
		}
		free()
		held, err = fetch(t, f, job.Input{Container: "data", Blob: "large"})
		if err != nil {
			t.Fatalf("Fetch with room = %v", err)
		}
		if got := contents(t, held)["large"]; got != string(large) {
			t.Errorf("the file has %d bytes, or others, want its %d", len(got), len(large))
		}
		if err := errors.Join(held.Close(), small.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestFullDiskEvictsFirst: on a disk that others have filled, files that no job uses make
// room for the next job's files, before it is refused.
func TestFullDiskEvictsFirst(t *testing.T) {
	isolated.WithDisk(t, spareSpace+32<<20, func(t *testing.T, disk string) {
		b := setup(t)
		b.folder = filepath.Join(disk, "inputs")
		f := b.fetcher(t, nil)
		for i := range 4 {
			b.put(t, fmt.Sprint(i), bytes.Repeat([]byte{byte(i)}, 4<<20))
			if err := mustFetch(t, f, job.Input{Container: "data", Blob: fmt.Sprint(i)}).Close(); err != nil {
				t.Fatal(err)
			}
		}
		b.put(t, "next", content(10<<20))
		free := isolated.FillDisk(t, disk, spareSpace+1<<20)
		held, err := fetch(t, f, job.Input{Container: "data", Blob: "next"})
		if err != nil {
			t.Fatalf("Fetch with 16 MiB of unused files in the cache = %v, want that they make room", err)
		}
		if _, err := fetch(t, f, job.Input{Container: "data", Prefix: ""}); !IsNoSpace(err) || !job.IsUnavailable(err) ||
			!strings.Contains(err.Error(), disk) {
			t.Errorf("Fetch of more than can be evicted = %v, want an interruption that names %s", err, disk)
		}
		free()
		if err := held.Close(); err != nil {
			t.Error(err)
		}
	})
}

// filesIn returns the files below a folder of at least that size.
func filesIn(t *testing.T, dir string, least int64) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() >= least {
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
