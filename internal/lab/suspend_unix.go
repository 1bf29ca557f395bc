//go:build unix

package lab

import (
	"os"
	"syscall"
)

// suspend stops a process until resume.
func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// resume continues a suspended process.
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
