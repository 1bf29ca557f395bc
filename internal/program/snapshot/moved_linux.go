package snapshot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/program/snapshot/trace"
)

// holdLimit bounds the wait for a program to stop. The parent of a vfork waits for its child, which is
// stopped too.
const holdLimit = time.Second

// hold stops all processes of the program by SIGSTOP. It returns them, and those that were not stopped before.
func hold() (all, stopped []int, err error) {
	end, before := time.Now().Add(holdLimit), []int(nil)
	for {
		if all, err = processesInside(); err != nil {
			return nil, nil, errors.Join(err, resume(stopped))
		}
		running := slices.DeleteFunc(slices.Clone(all), isStopped)
		if len(running) == 0 && slices.Equal(all, before) { // no fork has added one
			return all, stopped, nil
		}
		before = all
		for _, pid := range running {
			if !slices.Contains(stopped, pid) && unix.Kill(pid, unix.SIGSTOP) == nil {
				stopped = append(stopped, pid)
			}
		}
		if time.Now().After(end) {
			return nil, nil, errors.Join(notNow(fmt.Errorf("process %v does not stop", running)), resume(stopped))
		}
		time.Sleep(time.Millisecond)
	}
}

// notNow is the error of a program that cannot be changed at the moment.
func notNow(err error) error {
	return &RefusedError{Reason: fmt.Sprintf("the program has a deleted file in its memory, and cannot be changed for that now: %v", err)}
}

// isStopped reports whether all threads of a process are stopped, or have ended.
func isStopped(pid int) bool {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return !slices.ContainsFunc(entries, func(entry os.DirEntry) bool {
		tid, _ := strconv.Atoi(entry.Name())
		_, state, _ := stateOf(tid)
		return !slices.Contains([]string{"", "T", "Z", "X"}, state)
	})
}

// pageSize is the unit of mappings.
var pageSize = uint64(os.Getpagesize())

// copied is how much is copied at once, in bytes.
const copied = 1 << 20

// moveContent copies the content of files that only memory holds to one new file, and gives it to all their
// processes, which are stopped.
func (p *initProcess) moveContent(files [][]mapping) error {
	out, err := newKept()
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	var moves []mapping // with the offsets in the new file
	var size uint64
	for _, all := range files {
		first, end := all[0].offset, uint64(0)
		for _, m := range all {
			first, end = min(first, m.offset), max(end, m.offset+m.length())
		}
		for _, m := range all {
			m.offset += size - first
			moves = append(moves, m)
			err = errors.Join(err, copyMapping(out, m))
		}
		size += end - first
	}
	if err == nil {
		err = out.Truncate(int64(size))
	}
	if err == nil {
		err = p.remap(out.Name(), moves)
	}
	if err != nil && !errors.Is(err, errKilled) {
		err = errors.Join(err, os.Remove(out.Name()))
	}
	return err
}

// newKept makes a file for moveContent.
func newKept() (*os.File, error) {
	dir := filepath.Join(Place, "shm")
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return nil, err
	}
	for i := 1; ; i++ {
		out, err := os.OpenFile(filepath.Join(dir, keptPrefix+strconv.Itoa(i)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if !os.IsExist(err) {
			return out, err
		}
	}
}

// copyMapping copies memory that is not zero to its place in a file. Pages behind the end of a deleted file
// cannot be read.
func copyMapping(out *os.File, m mapping) error {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", m.pid))
	if err != nil {
		return err
	}
	defer func() { _ = memory.Close() }()
	part, zero := make([]byte, copied), make([]byte, pageSize)
	for at := uint64(0); at < m.length(); at += copied {
		n, err := memory.ReadAt(part[:min(copied, m.length()-at)], int64(m.start+at))
		for i := uint64(0); i < uint64(n); i += pageSize {
			page := part[i : i+pageSize]
			if slices.Equal(page, zero) {
				continue
			}
			if _, err := out.WriteAt(page, int64(m.offset+at+i)); err != nil {
				return err
			}
		}
		if errors.Is(err, unix.EIO) || errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// remap replaces mappings by those of another file: in all processes, or in none.
func (p *initProcess) remap(name string, moves []mapping) (err error) {
	callers := map[int]*caller{}
	defer func() {
		for _, c := range callers {
			_, _ = c.Call(c.at, unix.SYS_CLOSE, c.fd)
			if failed := c.Continue(); failed != nil && !errors.Is(failed, unix.ESRCH) {
				err = fmt.Errorf("%w: continue thread %d: %w", errKilled, c.ID, failed)
			}
		}
	}()
	for _, m := range moves {
		if callers[m.pid] != nil {
			continue
		}
		c, err := p.callerIn(m.pid)
		if err != nil {
			return notNow(err)
		}
		callers[m.pid] = c
		if err := c.open(m.pid, name); err != nil {
			return notNow(err)
		}
	}
	for i, m := range moves {
		c := callers[m.pid]
		_, err := c.Call(c.at, unix.SYS_MMAP, m.start, m.length(), m.protection(), unix.MAP_SHARED|unix.MAP_FIXED, c.fd, m.offset)
		switch {
		case errors.Is(err, unix.ESRCH): // it was killed
		case err != nil && i == 0:
			return notNow(err)
		case err != nil:
			return fmt.Errorf("%w: replace a deleted file in process %d: %w", errKilled, m.pid, err)
		}
	}
	return nil
}

func (m mapping) protection() (all uint64) {
	for i, bit := range []uint64{unix.PROT_READ, unix.PROT_WRITE, unix.PROT_EXEC} {
		if m.mode[i] != '-' {
			all |= bit
		}
	}
	return all
}

// caller makes system calls in a process.
type caller struct {
	*trace.Thread
	at uint64 // an instruction for them
	fd uint64 // the new file
}

// callerIn begins to trace a thread of a stopped process, which is in a system call if one is: not in the
// middle of a sequence that the kernel restarts elsewhere (rseq).
func (p *initProcess) callerIn(pid int) (*caller, error) {
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err != nil || isFiltered(status) {
		return nil, errors.Join(err, errors.New("it has a system call filter"))
	}
	at, err := trace.Instruction(pid)
	if err != nil {
		return nil, err
	}
	tid := pid
	calls, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	for _, name := range calls {
		if line, err := os.ReadFile(name); err == nil && line[0] != '-' {
			tid, _ = strconv.Atoi(filepath.Base(filepath.Dir(name)))
			break
		}
	}
	t, err := trace.Seize(tid, p.processes)
	if err == nil {
		err = t.Await(stopLimit)
	}
	if err != nil {
		return nil, err
	}
	return &caller{Thread: t, at: at}, nil
}

// open opens the new file in the process.
func (c *caller) open(pid int, name string) error {
	const noFile = ^uint64(0)
	place, err := c.Call(c.at, unix.SYS_MMAP, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, noFile, 0)
	if err != nil {
		return err
	}
	if err = memoryOf(pid).Write(place, append([]byte(name), 0)); err == nil {
		here := unix.AT_FDCWD
		c.fd, err = c.Call(c.at, unix.SYS_OPENAT, uint64(here), place, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW)
	}
	_, failed := c.Call(c.at, unix.SYS_MUNMAP, place, pageSize)
	return errors.Join(err, failed)
}
