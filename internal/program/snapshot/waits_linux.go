package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/program/snapshot/images"
	"github.com/spotworker/spotworker/internal/program/snapshot/trace"
)

// waits are the system calls in which threads wait, by thread id. The kernel does not show since
// when, so the init looks often. A wait counts from the first look that has found it.
type waits struct {
	mu     sync.Mutex
	all    map[int]wait
	looked time.Duration // CLOCK_MONOTONIC of the init at the last look, or at the start of the program
}

type wait struct {
	line     string // of /proc/PID/syscall: the call, its arguments, and where it was made
	switches string // how often the thread has begun to wait

	after, since time.Duration // when it may have begun, and when it had: CLOCK_MONOTONIC of the init
}

const (
	lookEvery = 100 * time.Millisecond
	lookShare = 200 // of the time is spent on looks, at most one in so many
)

// watch looks until the init ends.
func (w *waits) watch() {
	for {
		begun := time.Now()
		w.look()
		time.Sleep(max(lookEvery, lookShare*time.Since(begun)))
	}
}

// look finds the waits of the program, and returns them.
func (w *waits) look() map[int]wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.all
	w.all = map[int]wait{}
	now, err := readClocks()
	tasks, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	for _, dir := range tasks {
		tid, failed := strconv.Atoi(filepath.Base(dir))
		if failed != nil || tid < firstPID || err != nil {
			continue
		}
		line, failed := os.ReadFile(filepath.Join(dir, "syscall"))
		if failed != nil || bytes.HasPrefix(line, []byte("running")) {
			continue
		}
		status, _ := os.ReadFile(filepath.Join(dir, "status"))
		_, switches, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		switches, _, _ = strings.Cut(switches, "\n")
		found := wait{line: strings.TrimSpace(string(line)), switches: switches, after: w.looked, since: now.Monotonic}
		if was, ok := before[tid]; ok && was.line == found.line && was.switches == found.switches {
			found.after, found.since = was.after, was.since
		}
		w.all[tid] = found
	}
	w.looked = now.Monotonic
	return w.all
}

// waited returns for how long a thread has been in its interrupted call.
func (f *frozenThreads) waited(tid int, r images.Registers, now time.Duration) images.Waited {
	before, ok := f.waits[tid]
	if !ok || r.Line() != before.line {
		return images.Waited{}
	}
	return images.Waited{Least: now - before.since, Most: now - before.after}
}

// frozenThreads are the processes of a frozen program, and its threads with interrupted calls.
type frozenThreads struct {
	waits       map[int]wait             // before the freeze
	interrupted map[int]images.Registers // by thread id, as they are in the live program
	processes   []int                    // those that a signal had not stopped before
	held        []int                    // those that the init has stopped by SIGSTOP
}

// repair has the interrupted threads in the images of a frozen program make their calls again. A
// thread that a signal is about to interrupt is left alone.
func (f *frozenThreads) repair(dir string) error {
	f.interrupted = map[int]images.Registers{}
	now, err := readClocks()
	if err == nil {
		f.processes, err = programProcesses()
	}
	if err != nil {
		return err
	}
	names, _ := filepath.Glob(filepath.Join(dir, "core-*.img"))
	for _, name := range names {
		tid, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "core-"), ".img"))
		if err != nil {
			continue
		}
		c, err := images.ReadCore(name)
		if err != nil {
			return err
		}
		held := slices.Contains(f.held, tid)
		if c.Stopped && !held {
			f.processes = slices.DeleteFunc(f.processes, func(pid int) bool { return pid == tid })
		}
		c.Stopped = c.Stopped && !held
		process, signalled := statusOf(tid)
		again := runtime.GOARCH == "amd64" && !signalled && c.Registers.IsInterrupted()
		if !again && !held {
			continue
		}
		if again {
			f.interrupted[tid] = maps.Clone(c.Registers)
			m := images.Memory{Read: through(unix.ProcessVMReadv, process), Write: func(address uint64, data []byte) error {
				return images.WriteMemory(dir, process, address, data)
			}}
			c.Registers.Again(f.waited(tid, c.Registers, now.Monotonic), m)
		}
		if err := c.Write(); err != nil {
			return err
		}
	}
	return nil
}

// statusOf returns the process of a thread, and whether a signal is about to be delivered to it.
func statusOf(tid int) (process int, signalled bool) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	signals := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "Tgid":
			process, _ = strconv.Atoi(value)
		case "SigPnd", "ShdPnd", "SigBlk":
			signals[name], _ = strconv.ParseUint(value, 16, 64)
		}
	}
	return process, (signals["SigPnd"]|signals["ShdPnd"])&^signals["SigBlk"] != 0
}

// through returns a function that reads the memory of a process, or changes it where the process may
// do that too.
func through(call func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error), pid int) func(uint64, []byte) error {
	return func(address uint64, data []byte) error {
		local := []unix.Iovec{{Base: &data[0], Len: uint64(len(data))}}
		n, err := call(pid, local, []unix.RemoteIovec{{Base: uintptr(address), Len: len(data)}}, 0)
		if err == nil && n != len(data) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
}

func memoryOf(pid int) images.Memory {
	return images.Memory{Read: through(unix.ProcessVMReadv, pid), Write: through(unix.ProcessVMWritev, pid)}
}

// stopLimit bounds the wait for a traced thread.
const stopLimit = 10 * time.Second

// resume continues a program that criu has left stopped, and has its interrupted threads make their
// calls again. Call it in the main thread, as everything of package trace.
func (f *frozenThreads) resume(p *processes) error {
	for tid, r := range f.interrupted {
		t, err := trace.Seize(tid, p)
		if err == nil {
			err = t.Await(stopLimit)
		}
		if err == nil {
			if now := t.Registers(); now[images.AX] == r[images.AX] && now[images.IP] == r[images.IP] {
				err = f.makeAgain(t, r) // of the image: the live thread has lost the number of the call
			}
			err = errors.Join(err, t.Continue())
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // it was killed
			return fmt.Errorf("%w: continue thread %d: %w", errKilled, tid, err)
		}
	}
	return resume(f.processes)
}

// resume lets processes continue that SIGSTOP has stopped.
func resume(pids []int) error {
	slices.Sort(pids)
	for _, pid := range slices.Backward(pids) { // children first, so that no parent sees a stopped child
		if err := unix.Kill(pid, unix.SIGCONT); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("%w: continue process %d: %w", errKilled, pid, err)
		}
	}
	return nil
}

// makeAgain has a stopped thread make its interrupted call again.
func (f *frozenThreads) makeAgain(t *trace.Thread, r images.Registers) error {
	now, err := readClocks()
	if err != nil {
		return err
	}
	process, _ := statusOf(t.ID)
	r.Again(f.waited(t.ID, r, now.Monotonic), memoryOf(process))
	t.MakeCall(r)
	return nil
}
