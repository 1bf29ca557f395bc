package scratch

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/host/sandbox"
)

func TestDiskWatch(t *testing.T) {
	f := &Folder{Dir: t.TempDir()}
	fill := func(name string, size int) {
		if err := os.WriteFile(filepath.Join(f.Dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fill("small", 5)
	now := time.Now()
	d := &Watch{Folder: f, Limit: 4 << 10}
	defer d.Stop()
	// measure looks until the measurement that is due has ended.
	measure := func(d *Watch, now time.Time) error {
		err := d.Check(now)
		for err == nil && d.result != nil {
			time.Sleep(time.Millisecond)
			err = d.Check(now)
		}
		return err
	}
	if err := measure(d, now); err != nil {
		t.Errorf("look at a small folder = %v, want nil", err)
	}
	fill("large", 4<<10+1)
	if err := measure(d, now.Add(diskInterval/2)); err != nil {
		t.Errorf("look before its time = %v, want nil", err)
	}
	if err := measure(d, now.Add(time.Hour)); err == nil {
		t.Error("look at a folder that is too large = nil, want an error")
	}
	if err := measure(&Watch{Folder: f}, now); err != nil {
		t.Errorf("look without a limit = %v, want nil", err)
	}
}

// TestDiskCountsEntries: folders and empty files count, and what lies too deep to
// be counted counts as too much.
func TestDiskCountsEntries(t *testing.T) {
	for name, row := range map[string]struct {
		fill func(dir string) error
		want func(n int64) bool
	}{
		"25 folders": {func(dir string) (err error) {
			for i := range 25 {
				err = errors.Join(err, os.MkdirAll(filepath.Join(dir, fmt.Sprint(i)), 0o700))
			}
			return err
		}, func(n int64) bool { return n == 25*folderCounts }},
		"25 empty files": {func(dir string) (err error) {
			for i := range 25 {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
			}
			return err
		}, func(n int64) bool { return n == 25*entryCounts }},
		"too deep": {func(dir string) error {
			name := strings.Repeat("d", 200)
			inner := filepath.Join(dir, name)
			err := os.Mkdir(inner, 0o700)
			for range 30 {
				outer := filepath.Join(dir, "outer")
				err = errors.Join(err, os.Mkdir(outer, 0o700), os.Rename(inner, filepath.Join(outer, name)), os.Rename(outer, inner))
			}
			return err
		}, func(n int64) bool { return runtime.GOOS != "linux" || n == math.MaxInt64 }},
	} {
		dir := filepath.Join(t.TempDir(), "job")
		if err := errors.Join(os.Mkdir(dir, 0o700), row.fill(dir)); err != nil {
			t.Fatal(err)
		}
		if n := (&Folder{Dir: dir}).Size(1<<40, new(atomic.Bool)); !row.want(n) {
			t.Errorf("%s count %d bytes", name, n)
		}
		if err := sandbox.RemoveTree(dir); err != nil {
			t.Error(err)
		}
	}
}
