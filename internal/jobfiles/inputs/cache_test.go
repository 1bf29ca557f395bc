package inputs

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/spotworker/spotworker/job"
)

// entries returns the paths of all cache entries.
func (b *bench) entries(t testing.TB) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(b.folder, "blobs", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// age makes all entries look as if they were used that long ago.
func (b *bench) age(t testing.TB, by time.Duration) {
	t.Helper()
	for _, name := range b.entries(t) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		then := info.ModTime().Add(-by)
		if err := os.Chtimes(name, then, then); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEviction: when room is needed, entries that no job uses go, the longest unused
// first; an entry in use never goes, for any worker.
func TestEviction(t *testing.T) {
	b := setup(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		b.put(t, name, bytes.Repeat([]byte(name), 300))
	}
	one := b.fetcher(t, func(c *Config) { c.Limit = 1000 })
	two := b.fetcher(t, func(c *Config) { c.Limit = 1000 })
	get := func(f *Fetcher, name string) *Held { return mustFetch(t, f, job.Input{Container: "data", Blob: name}) }
	release := func(h *Held) {
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	used := get(two, "a") // and kept by the other worker
	b.age(t, time.Hour)
	release(get(one, "b"))
	b.age(t, time.Hour)
	release(get(one, "c"))
	b.age(t, time.Hour)
	release(get(one, "b")) // now c was used longest ago
	release(get(one, "d"))
	b.took("fetched")
	b.took("cached")
	release(get(one, "b"))
	release(get(one, "a"))
	if fetched, cached := b.took("fetched"), b.took("cached"); fetched != 0 || cached != 2 {
		t.Errorf("%d fetched and %d cached, want 0 and 2: the entry in use and the one used last stay", fetched, cached)
	}
	release(get(one, "c"))
	if fetched := b.took("fetched"); fetched != 1 {
		t.Errorf("%d fetched, want 1: c was evicted", fetched)
	}
	if got := len(b.entries(t)); got > 3 {
		t.Errorf("%d entries of 300 bytes are in a cache of 1000", got)
	}
	if got := contents(t, used)["a"]; got != strings.Repeat("a", 300) {
		t.Errorf("the file in use has %d bytes", len(got))
	}
	// All of the cache is in use.
	second, third := get(two, "b"), get(two, "d")
	if _, err := fetch(t, one, job.Input{Container: "data", Blob: "e"}); !IsNoSpace(err) || !job.IsUnavailable(err) {
		t.Errorf("fetch without room = %v, want that there is no room now", err)
	}
	release(second)
	release(third)
	release(get(one, "e"))
	release(used)
}

// TestDeadWorker: the files of a killed worker are removed, and do not count as used.
func TestDeadWorker(t *testing.T) {
	b := setup(t)
	b.put(t, "a", bytes.Repeat([]byte("a"), 600))
	b.put(t, "b", bytes.Repeat([]byte("b"), 600))
	dead := New(b.fetcher(t, func(c *Config) { c.Limit = 1000 }).config)
	mustFetch(t, dead, job.Input{Container: "data", Blob: "a"})
	if _, err := os.CreateTemp(dead.cache.own, "part-*"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := dead.cache.reserve(300, 0, 300); err != nil { // of a download that never ends
		t.Fatal(err)
	}
	_ = dead.cache.lock.Close() // as the kernel does
	next := b.fetcher(t, func(c *Config) { c.Limit = 1000 })
	mustFetch(t, next, job.Input{Container: "data", Blob: "b"})
	if _, err := os.Stat(dead.cache.own); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the dead worker: %v, want that it is gone", err)
	}
}

// TestReboot: entries of an earlier boot are not used: a crash may have torn them.
func TestReboot(t *testing.T) {
	b := setup(t)
	b.put(t, "a", []byte("one"))
	for _, row := range []struct {
		boot    string
		fetched int64
	}{{"boot-1", 1}, {"boot-1", 0}, {"boot-2", 1}, {"boot-2", 0}, {"", 0}} {
		f := b.fetcher(t, func(c *Config) { c.Boot = row.boot })
		mustFetch(t, f, job.Input{Container: "data", Blob: "a"})
		if got := b.took("fetched"); got != row.fetched {
			t.Errorf("boot %q: %d files fetched, want %d", row.boot, got, row.fetched)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTornEntry: an entry of another length is fetched again.
func TestTornEntry(t *testing.T) {
	b := setup(t)
	b.put(t, "a", []byte("whole"))
	f := b.fetcher(t, nil)
	mustFetch(t, f, job.Input{Container: "data", Blob: "a"})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	entry := b.entries(t)[0]
	if err := errors.Join(os.Chmod(entry, 0o600), os.Truncate(entry, 2)); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, mustFetch(t, b.fetcher(t, nil), job.Input{Container: "data", Blob: "a"}))["a"]; got != "whole" {
		t.Errorf("content = %q, want the whole blob", got)
	}
}

// TestWrongMD5: content that differs from the service's hash never becomes an entry.
func TestWrongMD5(t *testing.T) {
	b := setup(t)
	wrong := md5.Sum([]byte("other"))
	client := b.account.Container("data").NewBlockBlobClient("a")
	if _, err := client.StageBlock(t.Context(), "AAAA", streaming.NopCloser(strings.NewReader("content")), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CommitBlockList(t.Context(), []string{"AAAA"},
		&blockblob.CommitBlockListOptions{HTTPHeaders: &blob.HTTPHeaders{BlobContentMD5: wrong[:]}}); err != nil {
		t.Fatal(err)
	}
	f := b.fetcher(t, nil)
	_, err := fetch(t, f, job.Input{Container: "data", Blob: "a"})
	if err == nil || !strings.Contains(err.Error(), "MD5") || job.IsPermanent(err) || job.IsUnavailable(err) {
		t.Errorf("fetch = %v, want a failure about the MD5", err)
	}
	if left := b.entries(t); len(left) != 0 {
		t.Errorf("entries = %q, want none", left)
	}
	if left, _ := filepath.Glob(filepath.Join(b.folder, "workers", "*", "*")); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestTogether: jobs that need the same blobs at once fetch each of them once, and a
// stopped job does not take the others with it.
func TestTogether(t *testing.T) {
	b := setup(t)
	const blobs, jobs = 20, 8
	for i := range blobs {
		b.put(t, fmt.Sprintf("in/%d", i), content(1000+i))
	}
	f := b.fetcher(t, nil)
	plan, err := f.Resolve(t.Context(), message(t, job.Input{Container: "data", Prefix: "in/"}))
	if err != nil {
		t.Fatal(err)
	}
	b.counted()
	var all sync.WaitGroup
	for i := range jobs {
		ctx, stop := context.WithCancel(t.Context())
		if i == 0 {
			stop()
		}
		all.Go(func() {
			defer stop()
			held, err := f.Fetch(ctx, plan)
			if i == 0 {
				if err == nil {
					t.Error("a stopped job got its inputs")
				}
				return
			}
			if err != nil {
				t.Errorf("job %d: %v", i, err)
				return
			}
			if got := len(contents(t, held)); got != blobs {
				t.Errorf("job %d has %d files, want %d", i, got, blobs)
			}
		})
	}
	all.Wait()
	if got := b.counted()["GetBlob"]; got != blobs {
		t.Errorf("%d blobs were read with %d calls, want one each", blobs, got)
	}
}

// TestStopped: a stopped fetch leaves nothing, whenever the stop comes.
func TestStopped(t *testing.T) {
	b := setup(t)
	for i := range 5 {
		b.put(t, fmt.Sprintf("in/%d", i), content(rangeLength/2*i+1))
	}
	f := b.fetcher(t, nil)
	plan, err := f.Resolve(t.Context(), message(t, job.Input{Container: "data", Prefix: "in/"}))
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("evicted")
	for after := range 8 {
		ctx, stop := context.WithCancelCause(t.Context())
		calls := 0
		b.onCall(func(string) {
			if calls++; calls > after {
				stop(cause)
			}
		})
		held, err := f.Fetch(ctx, plan)
		b.onCall(nil)
		if err == nil {
			_ = held.Close()
		} else if !errors.Is(err, cause) {
			t.Errorf("stopped after %d calls: %v, want the cause", after, err)
		}
		stop(nil)
		if left, _ := filepath.Glob(filepath.Join(b.folder, "workers", "*", "*")); len(left) != 0 {
			t.Fatalf("stopped after %d calls, left behind: %q", after, left)
		}
	}
	mustFetch(t, f, job.Input{Container: "data", Prefix: "in/"})
}

// TestChangesWhileFetched: a blob that is replaced between listing and reading is
// reported as changed, or ends a job that needs the old version. It is never mixed.
func TestChangesWhileFetched(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		b := setup(t)
		input := job.Input{Container: "data", Blob: "a"}
		if etag := b.put(t, "a", content(2*rangeLength)); pinned {
			input.ETag = etag
		}
		f := b.fetcher(t, nil)
		plan, err := f.Resolve(t.Context(), message(t, input))
		if err != nil {
			t.Fatal(err)
		}
		newer := b.put(t, "a", content(2*rangeLength))
		_, err = f.Fetch(t.Context(), plan)
		if IsChanged(err) == pinned || job.IsPermanent(err) != pinned || !strings.Contains(err.Error(), "change") {
			t.Errorf("pinned %t: fetch = %v, want that it changed", pinned, err)
		}
		if left := b.entries(t); len(left) != 0 {
			t.Errorf("entries = %q, want none", left)
		}
		if _, err = fetch(t, f, input); pinned && (!job.IsPermanent(err) || !strings.Contains(err.Error(), "its ETag is "+newer)) || !pinned &&
			err != nil {
			t.Errorf("pinned %t: the next fetch = %v", pinned, err)
		}
	}
}
