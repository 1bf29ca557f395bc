//go:build unix

package outfolder

import "golang.org/x/sys/unix"

// noWait opens a named pipe without blocking.
const noWait = unix.O_NONBLOCK
