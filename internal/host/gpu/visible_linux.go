package gpu

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Attach hides all other GPUs from the processes of a control group and of those below it. It takes
// version 2 of control groups, CAP_BPF and CAP_NET_ADMIN (bpf_prog_load in the kernel's
// kernel/bpf/syscall.c). Other device programs, such as the service manager's, still hold.
func (v *Visible) Attach(group string) error {
	program, err := v.load()
	if err != nil {
		return fmt.Errorf("load a device program (it takes CAP_BPF, CAP_NET_ADMIN, and bpf in SystemCallFilter= of a unit): %w", err)
	}
	defer func() { _ = unix.Close(program) }() // the group keeps it
	dir, err := os.Open(group)
	if err != nil {
		return err
	}
	attach := struct{ target, program, kind, flags uint32 }{
		uint32(dir.Fd()), uint32(program), unix.BPF_CGROUP_DEVICE, unix.BPF_F_ALLOW_MULTI}
	_, err = bpf(unix.BPF_PROG_ATTACH, unsafe.Pointer(&attach), unsafe.Sizeof(attach)) //nolint:gosec // as the system call wants it
	if err = errors.Join(err, dir.Close()); err != nil {
		return fmt.Errorf("attach a device program: %w", err)
	}
	return nil
}

// instruction is an instruction of the kernel's virtual machine (struct bpf_insn).
type instruction struct {
	code, registers uint8 // the register that is written or compared, and in the upper half the other one
	offset          int16
	value           int32
}

// key names a device in a register of the program.
func (n node) key() int32 { return int32(n.major<<20 | n.minor) }

// instructions returns the device program (BPF_PROG_TYPE_CGROUP_DEVICE): its argument is struct
// bpf_cgroup_dev_ctx, and it returns 1 for a device that may be opened.
func (v *Visible) instructions() []instruction {
	const (
		load    = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W
		compute = unix.BPF_ALU64
		set     = compute | unix.BPF_MOV
		jump    = unix.BPF_JMP
		exit    = jump | unix.BPF_EXIT

		result, argument, kind, device, minor = 0, 1, 2, 3, 4 // registers
		refuse, permit                        = 0, 1
	)
	all := []instruction{
		{code: load, registers: kind | argument<<4},
		{code: compute | unix.BPF_AND, registers: kind, value: 0xffff}, // above is the access
		{code: load, registers: device | argument<<4, offset: 4},
		{code: load, registers: minor | argument<<4, offset: 8},
		{code: compute | unix.BPF_LSH, registers: device, value: 20},
		{code: compute | unix.BPF_OR | unix.BPF_X, registers: device | minor<<4},
	}
	unless := func(code, register uint8, value, answer int32) {
		all = append(all, instruction{code: code, registers: register, offset: 2, value: value},
			instruction{code: set, registers: result, value: answer}, instruction{code: exit})
	}
	unless(jump|unix.BPF_JEQ, kind, unix.BPF_DEVCG_DEV_CHAR, permit)
	for _, n := range v.own {
		unless(jump|unix.BPF_JNE, device, n.key(), permit)
	}
	for _, n := range v.others {
		unless(jump|unix.BPF_JNE, device, n.key(), refuse)
	}
	unless(jump|unix.BPF_JGE, device, node{nvidiaMajor, 0}.key(), permit)
	unless(jump|unix.BPF_JLT, device, node{nvidiaMajor, sharedMinors}.key(), permit)
	return append(all, instruction{code: set, registers: result, value: refuse}, instruction{code: exit})
}

// load gives the program to the kernel.
func (v *Visible) load() (program int, err error) {
	all, license := v.instructions(), []byte("MIT\x00") // only some helper functions need another one
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&all[0])
	pinned.Pin(&license[0])
	attributes := struct { // the first fields of union bpf_attr
		kind, count           uint32
		instructions, license uint64
	}{kind: unix.BPF_PROG_TYPE_CGROUP_DEVICE, count: uint32(len(all)),
		instructions: uint64(uintptr(unsafe.Pointer(&all[0]))), license: uint64(uintptr(unsafe.Pointer(&license[0])))} //nolint:gosec // likewise
	return bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&attributes), unsafe.Sizeof(attributes)) //nolint:gosec // likewise
}

func bpf(command int, attributes unsafe.Pointer, size uintptr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attributes), size)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}
