package outputs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// TestCancelledDownload: a download that was cancelled before its end is never reported as complete.
func TestCancelledDownload(t *testing.T) {
	store, _, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	for i := range 3 * parallelDownloads {
		send(t, s, fmt.Sprintf("%02d", i), "content")
	}
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var done atomic.Int64
	var once sync.Once
	err := store.Download(ctx, "j", s.Files(), t.TempDir(), func(File, int64) {
		once.Do(func() { cancel(stopped) }) // the other files wait here
		done.Add(1)
	})
	if err == nil || done.Load() == int64(len(s.Files())) {
		t.Errorf("Download that was cancelled after a file = %v, with %d files", err, done.Load())
	}
	if err := store.Download(ctx, "j", s.Files(), t.TempDir(), nil); !errors.Is(err, stopped) {
		t.Errorf("Download under a context that has ended = %v, want its cause", err)
	}
}

// TestUnsafePathStopsTheDownload: nothing is written if one of the paths cannot be.
func TestUnsafePathStopsTheDownload(t *testing.T) {
	store, _, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	send(t, s, "x", "content")
	dir := filepath.Join(t.TempDir(), "to")
	if err := store.Download(t.Context(), "j", append(s.Files(), File{Path: "../y"}), dir, nil); !errors.Is(err, ErrUnsafe) {
		t.Errorf("Download of a path that leads out = %v, want ErrUnsafe", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder = %v, want it not made", err)
	}
}

// together returns the largest number of calls of an operation that were active at once.
func together(server *storage.Server, operation string) *atomic.Int64 {
	var active, most atomic.Int64
	server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == operation {
			now := active.Add(1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
			}
			time.Sleep(time.Second)
			active.Add(-1)
		}
		return storage.Fault{}
	})
	return &most
}

// TestTransfersAtOnce: files are downloaded side by side up to a limit, and the memory for
// uploads has room for many small files or a few large ones.
func TestTransfersAtOnce(t *testing.T) {
	const files = 40
	upload := func(t *testing.T, s *Set, size int64) {
		t.Helper()
		errs := make(chan error)
		for i := range files {
			go func() {
				_, err := s.Send(t.Context(), fmt.Sprintf("%02d", i), size, strings.NewReader("content"))
				errs <- err
			}()
		}
		for range files {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		store, server, _ := testContainer(t)
		s := store.NewSet("j", 1, tokenA, roomy, "", nil)
		if most := together(server, storage.OpPutBlob); most.Load() != 0 {
			t.Fatal("calls before the first")
		} else if upload(t, s, 7); most.Load() != files {
			t.Errorf("small files sent at once = %d, want %d", most.Load(), files)
		}
		if most := together(server, storage.OpPutBlob); most.Load() != 0 {
			t.Fatal("calls before the first")
		} else if upload(t, s, -1); most.Load() != 4 {
			t.Errorf("files of unknown length sent at once = %d, want 4", most.Load())
		}
		most := together(server, storage.OpGetBlob)
		if err := store.Download(t.Context(), "j", s.Files(), t.TempDir(), nil); err != nil || most.Load() != parallelDownloads {
			t.Errorf("files downloaded at once = %d, %v, want %d", most.Load(), err, parallelDownloads)
		}
	})
}

// TestNamesThatBeginAlike: a name that begins like another one is neither its folder nor its file,
// and each counts.
func TestNamesThatBeginAlike(t *testing.T) {
	store, _, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	for _, path := range []string{"a", "ab", "ab.txt/c", "ab.t"} {
		send(t, s, path, "1")
	}
	for range 2 {
		if got, want := s.Sent(), (Sent{Files: 4, Bytes: 4}); got != want {
			t.Errorf("sent = %+v, want %+v", got, want)
		}
	}
}
