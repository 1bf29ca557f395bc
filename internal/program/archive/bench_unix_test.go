//go:build unix

package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Sizes of the folder of the benchmarks: 160 MB in 8,000 files.
const (
	benchFiles = 8000
	benchSize  = 20_000
)

// BenchmarkSave scans and reads a folder.
func BenchmarkSave(b *testing.B) {
	dir := benchFolder(b)
	measure(b, func(timed func(func() error) error) error {
		return timed(func() error {
			index, err := Scan(b.Context(), dir, roomy)
			if err != nil {
				return err
			}
			stream, err := index.Open()
			if err != nil {
				return err
			}
			_, err = io.CopyBuffer(io.Discard, struct{ io.Reader }{stream}, make([]byte, 1<<20))
			return errors.Join(err, stream.Close())
		})
	})
}

// BenchmarkRestore makes a folder of its stream.
func BenchmarkRestore(b *testing.B) {
	stream := streamOf(b, benchFolder(b))
	back := filepath.Join(b.TempDir(), "back")
	measure(b, func(timed func(func() error) error) error {
		if err := os.Mkdir(back, 0o700); err != nil {
			return err
		}
		err := timed(func() error { return Extract(bytes.NewReader(stream), back, roomy) })
		return errors.Join(err, os.RemoveAll(back))
	})
}

func benchFolder(b *testing.B) string {
	b.Helper()
	content := files{}
	for i := range benchFiles {
		content[fmt.Sprintf("part-%02d/sample-%04d", i/100, i)] = text(i, benchSize)
	}
	return folderOf(b, content)
}

// measure reports the processor time of the timed part of each call.
func measure(b *testing.B, do func(timed func(func() error) error) error) {
	b.Helper()
	var used time.Duration
	timed := func(step func() error) error {
		before := processorTime(b)
		b.StartTimer()
		err := step()
		b.StopTimer()
		used += processorTime(b) - before
		return err
	}
	b.StopTimer()
	for range b.N {
		if err := do(timed); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(used.Milliseconds())/float64(b.N), "cpu-ms/op")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
