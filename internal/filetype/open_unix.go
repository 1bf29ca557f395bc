//go:build unix

package filetype

import "golang.org/x/sys/unix"

// NoWait opens a named pipe without blocking.
const NoWait = unix.O_NONBLOCK
