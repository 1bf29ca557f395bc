package inputs

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/spotworker/spotworker/job"
)

// TestCacheRemovedFromOutside: a cleaner of temporary files removes the cache of a worker that
// runs, or this worker's part of it alone, which no job has used for long. The next job gets its
// inputs, and the worker ends without an error.
func TestCacheRemovedFromOutside(t *testing.T) {
	for name, part := range map[string]string{"all": ".", "the workers' folders": "workers"} {
		for _, verify := range []bool{false, true} {
			b := setup(t)
			b.put(t, "a", content(10))
			f := b.fetcher(t, func(c *Config) { c.Verify = verify })
			held := mustFetch(t, f, job.Input{Container: "data", Blob: "a"})
			remove := func() {
				if err := os.RemoveAll(filepath.Join(b.folder, part)); err != nil {
					t.Fatal(err)
				}
			}
			remove()
			again, err := fetch(t, f, job.Input{Container: "data", Blob: "a"})
			if err != nil {
				t.Fatalf("%s, verify %t: Fetch after the removal = %v, want the file", name, verify, err)
			}
			if got := contents(t, again)["a"]; got != string(content(10)) {
				t.Errorf("%s, verify %t: the file has %d bytes, or others, want its 10", name, verify, len(got))
			}
			if err := errors.Join(held.Close(), again.Close()); err != nil {
				t.Error(err)
			}
			remove()
			if err := f.Close(); err != nil {
				t.Errorf("%s, verify %t: Close after the removal = %v", name, verify, err)
			}
		}
	}
}

// descriptors returns how many files this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// TestFailedOpenLeavesNothing: where the cache cannot be opened each job tries it again. No try
// leaves an open file or a folder.
func TestFailedOpenLeavesNothing(t *testing.T) {
	b := setup(t)
	b.put(t, "a", content(10))
	f := b.fetcher(t, func(c *Config) { c.Boot = "" })   // after a boot the cache is emptied
	obstacle := filepath.Join(b.folder, "blobs", "link") // where hard links are tried
	if err := os.MkdirAll(filepath.Join(obstacle, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	for range 3 {
		if _, err := fetch(t, f, job.Input{Container: "data", Blob: "a"}); !job.IsUnavailable(err) {
			t.Fatalf("fetch without hard links = %v, want an interruption", err)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d files are open, want the %d of before", after, before)
	}
	if left, err := os.ReadDir(filepath.Join(b.folder, "workers")); len(left) > 0 || err != nil {
		t.Errorf("left in the folder of workers: %v, %v, want nothing", left, err)
	}
}

// TestReservationsEndWithoutDescriptors: a worker that has run out of descriptors cannot take
// the lock of the cache. Its reservations end nevertheless.
func TestReservationsEndWithoutDescriptors(t *testing.T) {
	b := setup(t)
	f := b.fetcher(t, nil)
	c, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	r, _, err := c.reserve(1000, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(c.path("lock"), c.path("lock-away")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(c.path("lock"), 0o700); err != nil { // which cannot be opened for writing
		t.Fatal(err)
	}
	if err := r.settle(); !errors.Is(err, syscall.EISDIR) {
		t.Fatalf("settle = %v, want that the lock is not to be had: else the test shows nothing", err)
	}
	if left, err := filepath.Glob(filepath.Join(c.own, reservePrefix+"*")); len(left) > 0 || err != nil {
		t.Errorf("reservations left: %v, %v, want none", left, err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d files are open, want the %d of before", after, before)
	}
	if err := errors.Join(os.Remove(c.path("lock")), os.Rename(c.path("lock-away"), c.path("lock"))); err != nil {
		t.Fatal(err)
	}
}
