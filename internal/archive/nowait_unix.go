//go:build unix

package archive

import "golang.org/x/sys/unix"

// noWait keeps the opening of what turns out to be a named pipe from waiting.
const noWait = unix.O_NONBLOCK
