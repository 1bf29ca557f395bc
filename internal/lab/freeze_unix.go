//go:build unix

package lab

import (
	"os"
	"syscall"
)

// suspend stops a process in the middle of whatever it does, as when a host
// pauses its VM, until proceed.
func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// proceed lets a suspended process go on, as if no time had passed.
func proceed(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
