//go:build unix

package archive

import "golang.org/x/sys/unix"

// noWait opens a named pipe without blocking.
const noWait = unix.O_NONBLOCK
