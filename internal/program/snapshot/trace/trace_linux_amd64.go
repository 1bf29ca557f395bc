// Package trace stops threads of a program, and has them make system calls, so that the program
// does not notice. All calls for a thread come from one thread of the caller: the kernel lets no other
// one trace it.
package trace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/program/snapshot/images"
)

// Waiter waits for threads, since only one part of a process can wait for its children.
type Waiter interface {
	Expect(id int)
	Await(id int, limit time.Duration) (syscall.WaitStatus, error)
	Forget(id int)
}

// Thread is a traced thread.
type Thread struct {
	ID int

	wait      Waiter
	registers unix.PtraceRegs // as it continues
	calls     bool            // it has made calls
	blocked   uint64          // its signals before them
}

// Seize begins to stop a thread. The error is ESRCH for one that has ended.
func Seize(id int, w Waiter) (*Thread, error) {
	w.Expect(id)
	err := unix.PtraceSeize(id)
	if err == nil {
		err = unix.PtraceInterrupt(id)
	}
	if err != nil {
		w.Forget(id)
		return nil, err
	}
	return &Thread{ID: id, wait: w}, nil
}

// Await waits until the thread has stopped. The error is ESRCH for one that has ended.
func (t *Thread) Await(limit time.Duration) error {
	if err := t.untilEvent(limit); err != nil {
		return err
	}
	if err := unix.PtraceSetOptions(t.ID, unix.PTRACE_O_TRACESYSGOOD); err != nil {
		return err
	}
	return unix.PtraceGetRegs(t.ID, &t.registers)
}

// untilEvent waits until the thread has stopped where the kernel looks for signals. There it makes
// an interrupted call again. Signals on the way are delivered.
func (t *Thread) untilEvent(limit time.Duration) error {
	for {
		status, err := t.await(limit)
		if err != nil || isEvent(status) {
			return err
		}
		if err := unix.PtraceCont(t.ID, passed(status)); err != nil {
			return err
		}
	}
}

func (t *Thread) await(limit time.Duration) (syscall.WaitStatus, error) {
	status, err := t.wait.Await(t.ID, limit)
	if err == nil && !status.Stopped() {
		t.wait.Forget(t.ID)
		err = unix.ESRCH
	}
	return status, err
}

const (
	eventShift  = 16   // of the event in a status
	systemCall  = 0x80 // a bit of the signal, for a system call (PTRACE_O_TRACESYSGOOD)
	getSigmask  = 0x420a
	setSigmask  = 0x420b
	sigmaskSize = 8
	userCode    = 0x33       // of 64 bits
	noCall      = ^uint64(0) // the kernel has no call to make again
	maxErrno    = 4095
	callLimit   = 10 * time.Second
)

func isEvent(s syscall.WaitStatus) bool { return int(s)>>eventShift == unix.PTRACE_EVENT_STOP }

// passed returns the signal that a thread has stopped for.
func passed(s syscall.WaitStatus) int {
	if isEvent(s) || s.StopSignal()&systemCall != 0 {
		return 0
	}
	return int(s.StopSignal())
}

// Registers returns the registers that the thread continues with.
func (t *Thread) Registers() images.Registers {
	return images.Registers{images.AX: t.registers.Rax, images.IP: t.registers.Rip}
}

// MakeCall has the thread continue with the system call in registers.
func (t *Thread) MakeCall(from images.Registers) {
	r := &t.registers
	r.Rax, r.Orig_rax, r.Rip = from[images.AX], noCall, from[images.IP]
	r.Rdi, r.Rsi, r.Rdx, r.R10 = from[images.DI], from[images.SI], from[images.DX], from[images.R10]
}

// Call has the stopped thread make a system call by the instruction at an address, and returns its
// result.
func (t *Thread) Call(at, number uint64, arguments ...uint64) (uint64, error) {
	if t.registers.Cs != userCode {
		return 0, errors.New("it runs 32-bit code")
	}
	if !t.calls {
		if err := errors.Join(t.sigmask(getSigmask, &t.blocked), t.sigmask(setSigmask, new(^uint64(0)))); err != nil {
			return 0, err
		}
		t.calls = true
	}
	r := t.registers
	r.Rip, r.Rax, r.Orig_rax = at, number, noCall
	for i, to := range []*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9} {
		if *to = 0; i < len(arguments) {
			*to = arguments[i]
		}
	}
	err := unix.PtraceSetRegs(t.ID, &r)
	for range 2 { // it stops before the call and behind it
		if err == nil {
			err = t.untilCall()
		}
	}
	if err == nil {
		err = unix.PtraceGetRegs(t.ID, &r)
	}
	if err == nil && r.Rax > noCall-maxErrno {
		err = syscall.Errno(-r.Rax)
	}
	return r.Rax, err
}

func (t *Thread) untilCall() error {
	for signal := 0; ; {
		if err := unix.PtraceSyscall(t.ID, signal); err != nil {
			return err
		}
		status, err := t.await(callLimit)
		if err != nil || status.StopSignal()&systemCall != 0 {
			return err
		}
		signal = passed(status) // SIGSTOP: all others are blocked
	}
}

func (t *Thread) sigmask(request uintptr, mask *uint64) error {
	place := unsafe.Pointer(mask) //nolint:gosec // there is no other way
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, request, uintptr(t.ID), sigmaskSize, uintptr(place), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Continue lets a stopped thread continue where it was.
func (t *Thread) Continue() error {
	defer t.wait.Forget(t.ID)
	if t.calls {
		err := unix.PtraceInterrupt(t.ID)
		if err == nil {
			err = unix.PtraceCont(t.ID, 0)
		}
		if err == nil {
			err = t.untilEvent(callLimit)
		}
		if err == nil {
			err = t.sigmask(setSigmask, &t.blocked)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(unix.PtraceSetRegs(t.ID, &t.registers), unix.PtraceDetach(t.ID))
}

// Instruction returns the address of an instruction for system calls in a process: each one has some
// code of the kernel.
func Instruction(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		var start, end uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
			return 0, err
		}
		code := make([]byte, end-start)
		memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err != nil {
			return 0, err
		}
		_, err = memory.ReadAt(code, int64(start))
		_ = memory.Close()
		if at := bytes.Index(code, []byte{0x0f, 0x05}); at >= 0 && err == nil {
			return start + uint64(at), nil
		}
	}
	return 0, errors.New("it has no code of the kernel")
}
