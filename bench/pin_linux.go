package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

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
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, c.Priority); err != nil {
			return fmt.Errorf("run with --priority %d, which needs root below 0: %w", c.Priority, err)
		}
	}
	path, err := exec.LookPath(c.Program)
	if err != nil {
		return err
	}
	return syscall.Exec(path, append([]string{path}, c.Arguments...), os.Environ()) //nolint:gosec // a program that bench built
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
