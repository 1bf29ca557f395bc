package snapshot

import "golang.org/x/sys/unix"

// makeAgain changes a traced thread, if it has the registers of its image, so that it makes its
// call again.
func (f *frozenThreads) makeAgain(tid int, r registers) error {
	var now unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &now); err != nil {
		return err
	}
	if now.Rax != r[regAX] || now.Rip != r[regIP] {
		return nil
	}
	clocks, err := readClocks()
	if err != nil {
		return err
	}
	process, _ := statusOf(tid)
	r.again(f.waited(tid, r, clocks.Monotonic), memory{through(unix.ProcessVMReadv, process), through(unix.ProcessVMWritev, process)})
	const none = ^uint64(0) // the kernel has no call to make again
	now.Rax, now.Orig_rax, now.Rip = r[regAX], none, r[regIP]
	now.Rdi, now.Rsi, now.Rdx, now.R10 = r[regDI], r[regSI], r[regDX], r[regR10]
	return unix.PtraceSetRegs(tid, &now)
}
