//go:build !unix && !windows

package program

import "syscall"

// roles are the programs that the test binary can be: none here.
var roles map[string]func() int

// errDiskFull is the error of a full disk.
const errDiskFull = syscall.ENOSPC
