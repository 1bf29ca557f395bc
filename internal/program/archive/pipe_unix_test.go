//go:build unix

package archive

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

func makePipe(dir string) error { return makePipeAt(filepath.Join(dir, "pipe")) }

func makePipeAt(name string) error { return unix.Mkfifo(name, 0o600) }
