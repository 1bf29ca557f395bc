//go:build unix

package filetype

import (
	"os"

	"golang.org/x/sys/unix"
)

// NoWait opens a named pipe without blocking.
const NoWait = unix.O_NONBLOCK

// OpenFolder opens a folder for reading. Anything else is an error: opening a named pipe
// would block, and a link would lead elsewhere.
func OpenFolder(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// OpenRoot is [os.OpenRoot], which would block at a named pipe. With a dot behind it
// anything but a folder is an error.
func OpenRoot(dir string) (*os.Root, error) { return os.OpenRoot(dir + "/.") }
