package inputs

import (
	"bytes"
	"context"
	"crypto/md5"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

// TestThousandInputs: 1,000 blobs of a prefix cost a listing and a call each, and the
// listing alone when they are in the cache.
func TestThousandInputs(t *testing.T) {
	proof.Only(t, "it writes many files")
	b := setup(t)
	b.server.SetFullPages()
	const blobs = 1000
	for i := range blobs {
		b.put(t, fmt.Sprintf("in/%04d", i), content(1<<10))
	}
	f := b.fetcher(t, nil)
	b.counted()
	for _, row := range []struct {
		name string
		want map[string]int
	}{{"an empty cache", map[string]int{"ListBlobs": 1, "GetBlob": blobs}}, {"the cache", map[string]int{"ListBlobs": 1}}} {
		held := mustFetch(t, f, job.Input{Container: "data", Prefix: "in/"})
		if got := b.counted(); !maps.Equal(got, row.want) || len(held.Files) != blobs {
			t.Errorf("from %s: calls %v for %d files, want %v", row.name, got, len(held.Files), row.want)
		}
	}
}

// BenchmarkThousandInputs fetches 1,000 blobs of 1 MiB from the local Azure over a socket:
// into an empty cache, from the cache, and for comparison with a loop of the SDK alone
// that has as many calls in flight and verifies the MD5, as AzCopy does by default, but
// keeps nothing.
func BenchmarkThousandInputs(b *testing.B) {
	const blobs, size = 1000, 1 << 20
	local := setup(b)
	address, err := local.server.Listen(storage.Addresses{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = local.server.Close() })
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: address, Concurrency: Connections})
	if err != nil {
		b.Fatal(err)
	}
	local.account = account
	for i := range blobs {
		local.put(b, fmt.Sprintf("in/%04d", i), content(size))
	}
	input := job.Input{Container: "data", Prefix: "in/"}
	begin := func(b *testing.B) {
		b.SetBytes(blobs * size)
		b.ResetTimer()
	}
	b.Run("cold", func(b *testing.B) {
		begin(b)
		for n := range b.N {
			b.StopTimer()
			f := local.fetcher(b, func(c *Config) { c.Folder, c.Limit = filepath.Join(b.TempDir(), fmt.Sprint(n)), 4<<30 })
			b.StartTimer()
			held := mustFetch(b, f, input)
			b.StopTimer()
			_ = held.Close()
			b.StartTimer()
		}
	})
	b.Run("warm", func(b *testing.B) {
		f := local.fetcher(b, func(c *Config) { c.Folder, c.Limit = filepath.Join(b.TempDir(), "warm"), 4<<30 })
		mustFetch(b, f, input)
		begin(b)
		for b.Loop() {
			_ = mustFetch(b, f, input).Close()
		}
	})
	b.Run("sdk", func(b *testing.B) {
		begin(b)
		for b.Loop() {
			download(b, account, filepath.Join(b.TempDir(), "sdk"), blobs)
		}
	})
}

// download writes all blobs to files, as a parallel copy does.
func download(b *testing.B, account *azure.Account, folder string, blobs int) {
	b.Helper()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		b.Fatal(err)
	}
	work, ctx := errgroup.WithContext(context.Background())
	work.SetLimit(firstRanges / smallest)
	for i := range blobs {
		work.Go(func() error {
			name := fmt.Sprintf("in/%04d", i)
			file, err := os.Create(filepath.Join(folder, filepath.Base(name)))
			if err != nil {
				return err
			}
			defer func() { _ = file.Close() }()
			reply, err := account.Container("data").NewBlobClient(name).DownloadStream(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = reply.Body.Close() }()
			sum := md5.New()
			if _, err = io.Copy(io.MultiWriter(file, sum), reply.Body); err == nil && !bytes.Equal(sum.Sum(nil), reply.ContentMD5) {
				err = fmt.Errorf("%s was damaged", name)
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		b.Fatal(err)
	}
}
