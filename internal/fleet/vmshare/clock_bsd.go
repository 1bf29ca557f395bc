//go:build darwin || freebsd || openbsd || dragonfly

package vmshare

import "golang.org/x/sys/unix"

const bootClock = unix.CLOCK_MONOTONIC
