package scratch

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/host/resource"
	"github.com/spotworker/spotworker/internal/test/isolated"
)

// TestFullDisk: leftovers that fill the disk go before the worker's folder is made. A disk that is
// full of other files is an exhausted resource.
func TestFullDisk(t *testing.T) {
	isolated.WithDisk(t, 1<<20, func(t *testing.T, disk string) {
		if err := unix.Mount("small", disk, "tmpfs", unix.MS_REMOUNT, "nr_inodes=20"); err != nil {
			t.Fatal(err)
		}
		fill := func(folder string) (err error) {
			for err = os.MkdirAll(folder, 0o700); err == nil; {
				var file *os.File
				if file, err = os.CreateTemp(folder, ""); err == nil {
					err = file.Close()
				}
			}
			return err
		}
		dead := filepath.Join(disk, scratchPrefix+"dead")
		if err := errors.Join(os.Mkdir(dead, 0o700), os.WriteFile(lockOf(dead), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := fill(dead); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
		root, err := Open(disk, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("Open on a disk that is full of leftovers = %v", err)
		}
		if err := root.Close(); err != nil {
			t.Error(err)
		}
		if err := fill(filepath.Join(disk, "other")); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
		if _, err := Open(disk, nil, slog.New(slog.DiscardHandler)); !resource.IsExhaustion(err) {
			t.Errorf("Open on a full disk = %v, want an exhausted resource", err)
		}
	})
}
