//go:build unix

package ownfiles

import "golang.org/x/sys/unix"

// noWait opens a file without waiting for the other end of a pipe.
const noWait = unix.O_NONBLOCK
