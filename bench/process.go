//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a child on a core of its own. Its log goes to a file, as a service's log does.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	output *os.File // closed with the process, so that no read waits for ever
	log    string   // file of its log
	stop   sync.Once
}

// startProcess starts a program.
func (b *bench) startProcess(ctx context.Context, core int, env []string, program string, args ...string) (*process, error) {
	log, err := os.CreateTemp(b.folder, "log-")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	cmd := b.command(ctx, core, env, program, args)
	cmd.Stdout, cmd.Stderr = write, log
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, read.Close())
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, read.Close())
	}
	return &process{cmd: cmd, in: in, out: bufio.NewScanner(read), output: read, log: log.Name()}, nil
}

// startWorker starts a worker on a storage account.
func (b *bench) startWorker(ctx context.Context, s *storageProcess, binary string, args ...string) (*process, error) {
	return b.startProcess(ctx, sideCore, connect(s), binary, append([]string{"--metadata-endpoint", "none", "--listen", "none"}, args...)...)
}

// connect is the variable that leads programs to a storage account.
func connect(s *storageProcess) []string {
	return []string{"AZURE_STORAGE_CONNECTION_STRING=" + s.connectionString}
}

// command is a program with GOMAXPROCS=1, on a core where that is possible, or one that uses all cores.
func (b *bench) command(ctx context.Context, core int, env []string, program string, args []string) *exec.Cmd {
	if b.pinned() {
		program, args = b.self, append([]string{"pin", strconv.Itoa(b.cores[core]), program, "--"}, args...)
	}
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // programs that this one built
	cmd.Env = append(os.Environ(), env...)
	if !b.free {
		cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	}
	return cmd
}

// pinCommand becomes another program, on one core.
type pinCommand struct {
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
	path, err := exec.LookPath(c.Program)
	if err != nil {
		return err
	}
	return syscall.Exec(path, append([]string{path}, c.Arguments...), os.Environ()) //nolint:gosec // a program that bench built
}

// ask writes a line and reads the answer into v.
func (p *process) ask(v any) error {
	if _, err := p.in.Write([]byte("\n")); err != nil {
		return err
	}
	return p.answer(v)
}

// answer reads the next line into v.
func (p *process) answer(v any) error {
	if err := p.output.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if !p.out.Scan() {
		return fmt.Errorf("%s ended or did not answer: %w", p.cmd.Path, errors.Join(p.out.Err(), io.ErrUnexpectedEOF))
	}
	return json.Unmarshal(p.out.Bytes(), v)
}

// kill ends the process and waits for it.
func (p *process) kill() {
	p.stop.Do(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()         // killed
		_ = p.output.Close()
		_ = os.Remove(p.log)
	})
}

// times returns how long the threads of a process have run, and how long they have waited for a
// core which others had.
func (p *process) times() (ran, waited time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid)) // fails only for a bad pattern
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			running, _ := strconv.ParseInt(fields[0], 10, 64) // the kernel writes numbers
			waiting, _ := strconv.ParseInt(fields[1], 10, 64)
			ran, waited = ran+time.Duration(running), waited+time.Duration(waiting)
		}
	}
	return ran, waited
}

// residentMiB returns the memory of a process that is in use (RSS).
func (p *process) residentMiB() float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid)) // fails only if it has ended
	var size, resident int
	_, _ = fmt.Sscan(string(text), &size, &resident)
	return float64(resident*os.Getpagesize()) / (1 << 20)
}

// used is the processor time of a process that has ended, with its children.
func used(cmd *exec.Cmd) time.Duration {
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// logLine is a line of a worker's log. Lines have the last fields if they are about a drain.
type logLine struct {
	Time        time.Time `json:"time"`
	Message     string    `json:"msg"`
	SinceNotice string    `json:"since_notice"`
	Released    int       `json:"released"`
}

// awaitLogged waits for the line with that message, which is one of the last of the log.
func (p *process) awaitLogged(message string) (found logLine, err error) {
	err = within("the worker did not log "+strconv.Quote(message), func() (bool, error) {
		file, err := os.Open(p.log)
		if err != nil {
			return false, err
		}
		defer file.Close()
		if end, err := file.Seek(0, io.SeekEnd); err != nil {
			return false, err
		} else if _, err := file.Seek(max(end-8<<10, 0), io.SeekStart); err != nil {
			return false, err
		}
		tail, err := io.ReadAll(file)
		for line := range bytes.Lines(tail) {
			if json.Unmarshal(line, &found) == nil && found.Message == message {
				return true, nil
			}
		}
		return false, err
	})
	return found, err
}
