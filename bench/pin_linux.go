package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pinCommand becomes another program, on one core.
type pinCommand struct {
	Priority  int
	Core      int      `arg:""`
	Program   string   `arg:""`
	Arguments []string `arg:"" optional:""`
}

// Run replaces this process.
func (c *pinCommand) Run() error {
	runtime.LockOSThread() // the thread that calls exec keeps its cores
	var set unix.CPUSet
	set.Set(c.Core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("choose core %d: %w", c.Core, err)
	}
	if c.Priority != 0 {
		if err := prefer(c.Priority); err != nil {
			return fmt.Errorf("run with --priority %d, which needs root below 0: %w", c.Priority, err)
		}
	}
	path, err := exec.LookPath(c.Program)
	if err != nil {
		return err
	}
	return syscall.Exec(path, append([]string{path}, c.Arguments...), os.Environ()) //nolint:gosec // a program that bench built
}

// prefer sets the nice value of this process among all others. Where the kernel groups
// processes by session (autogroups), a nice value counts within the session only, so the
// process gets a session of its own and that the value.
func prefer(nice int) error {
	if _, err := syscall.Setsid(); err != nil {
		return err
	}
	err := os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, 0, nice)
}

// waited returns how long the threads of a process have waited for a core, which others
// had.
func waited(pid int) (sum time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // fails only for a bad pattern
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			nanoseconds, _ := strconv.ParseInt(fields[1], 10, 64) // the kernel writes numbers
			sum += time.Duration(nanoseconds)
		}
	}
	return sum
}

// residentBytes returns the memory of a process that is in use (RSS), and how much of it are
// pages of files: of its program, which the kernel may drop and read again.
func residentBytes(pid int) (all, ofFiles int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, 0 // the process has ended
	}
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return 0, 0
	}
	resident, _ := strconv.ParseInt(fields[1], 10, 64) // the kernel writes numbers
	shared, _ := strconv.ParseInt(fields[2], 10, 64)
	return resident * int64(os.Getpagesize()), shared * int64(os.Getpagesize())
}

// connectionsOf returns how many sockets a process has open.
func connectionsOf(pid int) (n int) {
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0 // the process has ended
	}
	for _, e := range entries {
		if target, err := os.Readlink(folder + "/" + e.Name()); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// cores returns the cores that this process may use.
func cores() (list []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			list = append(list, i)
		}
	}
	return list
}
