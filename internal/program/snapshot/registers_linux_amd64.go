package snapshot

import (
	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/program/snapshot/images"
)

// makeAgain changes a traced thread, if it has the registers of its image, so that it makes its
// call again.
func (f *frozenThreads) makeAgain(tid int, r images.Registers) error {
	var now unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &now); err != nil {
		return err
	}
	if now.Rax != r[images.AX] || now.Rip != r[images.IP] {
		return nil
	}
	clocks, err := readClocks()
	if err != nil {
		return err
	}
	process, _ := statusOf(tid)
	r.Again(f.waited(tid, r, clocks.Monotonic), memoryOf(process))
	const none = ^uint64(0) // the kernel has no call to make again
	now.Rax, now.Orig_rax, now.Rip = r[images.AX], none, r[images.IP]
	now.Rdi, now.Rsi, now.Rdx, now.R10 = r[images.DI], r[images.SI], r[images.DX], r[images.R10]
	return unix.PtraceSetRegs(tid, &now)
}
