package sandbox

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// full has TestRemovalIsBounded measure the rows of docs/SECURITY.md, on a disk,
// which takes minutes.
var full = flag.Bool("figures", false, "remove 100,000 levels, 100,000 folders and 2,000,000 files")

// folderVariable names the folder that a process removes.
const folderVariable = "SPOTWORKER_TEST_FOLDER"

// removal holds the measurements of a tree's removal.
type removal struct {
	Live uint64 // bytes of the heap that were in use, at most
	RSS  string // of the process, at most
	Took time.Duration
}

// maxDescriptors is how many descriptors a removal may have open: a level and one
// of its folders.
const maxDescriptors = 2

// removeAndMeasure removes a folder in a process that can open [maxDescriptors]
// files more, and prints a removal.
func removeAndMeasure() error {
	if err := limitDescriptors(maxDescriptors); err != nil {
		return err
	}
	done, most := make(chan struct{}), make(chan uint64)
	go func() {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		var largest uint64
		for {
			runtime.GC()
			metrics.Read(live)
			largest = max(largest, live[0].Value.Uint64())
			select {
			case <-done:
				most <- largest
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	began := time.Now()
	err := RemoveTree(os.Getenv(folderVariable))
	r := removal{Took: time.Since(began)}
	close(done)
	r.Live = <-most
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 10, Max: 1 << 10}); err != nil {
		return err
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			r.RSS = strings.TrimSpace(value)
		}
	}
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(r))
}

// limitDescriptors lets this process have as many more descriptors than it has.
func limitDescriptors(more int) error {
	var files []*os.File
	defer func() {
		for _, file := range files {
			_ = file.Close()
		}
	}()
	limit := unix.Rlimit{Max: 1 << 10}
	for range more + 1 { // the runtime opens its own for polling after the first
		file, err := os.Open("/dev/null")
		if err != nil {
			return err
		}
		files = append(files, file)
		limit.Cur = uint64(file.Fd())
	}
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}

// TestRemovalIsBounded: the removal of a tree of any shape and size takes two
// descriptors and a constant amount of memory. The largest trees are in
// docs/SECURITY.md.
func TestRemovalIsBounded(t *testing.T) {
	few, many, depth := proof.Times(2_000, 10_000), proof.Times(5_000, 20_000), 2_500
	parent := func() string { // folders take a millisecond each on a disk
		dir, err := os.MkdirTemp("/dev/shm", "removal-*") //nolint:usetesting // see above
		if err != nil {
			return t.TempDir()
		}
		t.Cleanup(func() { _ = RemoveTree(dir) })
		return dir
	}
	if *full {
		few, many, depth, parent = 100_000, 2_000_000, 100_000, t.TempDir
	}
	for _, row := range []struct {
		name string
		fill func(dir string)
	}{
		{fmt.Sprintf("%d files in a folder", many), func(dir string) { makeFiles(t, dir, many) }},
		{fmt.Sprintf("%d folders in a folder", few), func(dir string) {
			for i := range few {
				makeFolder(t, filepath.Join(dir, fmt.Sprint(i), "a"))
			}
		}},
		{fmt.Sprintf("%d levels", depth), func(dir string) { nested(t, dir, depth) }},
		{fmt.Sprintf("%d levels of 200 folders", few/200), func(dir string) {
			for level := range few / 200 {
				for i := range 199 {
					makeFolder(t, filepath.Join(dir, fmt.Sprint(i), "a"))
				}
				if level > 0 { // the levels before go into this one
					rename(t, filepath.Join(filepath.Dir(dir), "inner"), filepath.Join(dir, "z"))
				}
				rename(t, dir, filepath.Join(filepath.Dir(dir), "inner"))
				makeFolder(t, dir)
			}
			rename(t, filepath.Join(filepath.Dir(dir), "inner"), filepath.Join(dir, "z"))
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := filepath.Join(parent(), "tree")
			makeFolder(t, dir)
			row.fill(dir)
			defer func() { _ = RemoveTree(dir) }()
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
			// A collection that runs beside the removal would count allocations during
			// it. With eight processors on two cores the kernel refused the second
			// descriptor once in some thousand times, although nothing had it.
			cmd.Env = append(os.Environ(), workerVariable+"=remove", folderVariable+"="+dir, "GORACE=atexit_sleep_ms=0",
				"GOMAXPROCS=1", "GODEBUG=gcstoptheworld=1")
			var said strings.Builder
			cmd.Stderr = &said
			out, err := cmd.Output()
			var r removal
			if err != nil || json.Unmarshal(out, &r) != nil {
				t.Fatalf("removal with %d descriptors: %v: %s", maxDescriptors, err, said.String())
			}
			t.Logf("%s: %d descriptors, heap %d KiB, peak RSS %s, %s", row.name, maxDescriptors, r.Live>>10, r.RSS, r.Took.Round(time.Millisecond))
			// A list of the folders of the largest trees would take more.
			if r.Live > 1<<20 {
				t.Errorf("removal holds %d bytes of heap, want at most 1 MiB", r.Live)
			}
			if _, err := os.Lstat(dir); !os.IsNotExist(err) {
				t.Errorf("Lstat afterwards = %v, want that there is nothing", err)
			}
		})
	}
}

func makeFolder(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func makeFiles(t *testing.T, dir string, number int) {
	t.Helper()
	for i := range number {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestRemoveTreeOnAFullDisk: a tree is removed although its file system has no
// inode left for a folder.
func TestRemoveTreeOnAFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("none", disk, "tmpfs", 0, "nr_inodes=40"); err != nil {
		need.Missing(t, "the right to mount: "+err.Error())
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	dir := filepath.Join(disk, "tree")
	deepest := filepath.Join(dir, "a/b/c/d")
	makeFolder(t, deepest)
	for i := 0; ; i++ {
		if err := os.Mkdir(filepath.Join(deepest, fmt.Sprint(i)), 0o700); errors.Is(err, unix.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveTree(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("Lstat afterwards = %v, want that there is nothing", err)
	}
}
