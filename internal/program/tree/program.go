package tree

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"github.com/spotworker/spotworker/internal/host/gpu"
	"github.com/spotworker/spotworker/internal/host/sandbox"
)

// Program is a running command and its children.
type Program struct {
	cmd    *exec.Cmd
	exited chan Exit // gets one value

	mu    sync.Mutex
	group group // nil after its end: the id may belong to other processes by then
}

// group is all processes of a program.
type group interface {
	// terminate asks them to stop with a signal, where the system has signals.
	terminate(with syscall.Signal) error

	// kill ends them.
	kill() error

	// release waits until they have ended, once they were killed, and frees their resources.
	release()

	// full reports whether the processes have reached [Limits.Tasks], as far as that is known.
	full() bool

	// exit returns how the program ended, given how the process ended that was started. It
	// is called after release.
	exit(state *os.ProcessState) Exit
}

// waiter is a group whose program the worker has not started itself.
type waiter interface {
	// wait waits until the whole group has ended. exit then gets nil.
	wait()
}

// Limits are the limits that the operating system enforces. A zero limit means none.
type Limits struct {
	// For each process of a program.
	Memory   int64 // private writable memory, in bytes
	FileSize int64 // of one file, in bytes; not on Windows

	// For all processes of a program together. On Linux they take a control group; see
	// [Groups].
	TotalMemory int64   // in bytes
	CPUs        float64 // how many processors they may use at once
	Tasks       int     // processes and threads; on Windows processes

	// GPUs are those that the program can open, nil for all. They take a control group too.
	GPUs *gpu.Visible

	// UserTasks bounds the tasks of the program's user (RLIMIT_NPROC), not on Windows.
	UserTasks int
}

// Output connects the standard output and error of a program.
type Output interface {
	// Attach connects them to a command that is not started yet.
	Attach(cmd *exec.Cmd) error

	// Started is called after the start of the command, also if it failed.
	Started(ok bool)
}

// Start starts a command of [NewCommand] with the same limits. Its output goes to out.
// It returns an error only if the command did not start; a program that ends at once has
// started.
//
// groups may be nil.
//
// The goroutine that starts it stays on its thread until the program has ended: the
// kernel kills a program when the thread that started it ends. That is how programs
// end with a killed worker (see [NewCommand]).
func Start(cmd *exec.Cmd, l Limits, groups *Groups, user *sandbox.User, out Output) (*Program, error) {
	if err := user.Do(func() error { _, err := os.Stat(cmd.Dir); return err }); err != nil {
		return nil, fmt.Errorf("its working directory: %w", err) // otherwise the error would name the program
	}
	p := &Program{cmd: cmd, exited: make(chan Exit, 1)}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := user.Apply(cmd)
		if err == nil {
			err = out.Attach(cmd)
		}
		if err == nil {
			p.group, err = begin(cmd, l, groups, user)
		}
		out.Started(err == nil)
		started <- err
		if err == nil {
			p.exited <- p.wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	if cmd.Process != nil { // it is the worker's own child
		_ = user.Do(func() error { tune(cmd.Process.Pid); return nil })
	}
	return p, nil
}

// abandon ends a process that was started and cannot be put into its group.
func abandon(cmd *exec.Cmd, err error) error {
	killed := cmd.Process.Kill()
	waited := cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](waited); ok {
		waited = nil
	}
	return errors.Join(err, killed, waited)
}

// wait waits for the end of the program, and then kills the rest of its group: where
// the system allows it, before the process id, which is also the group's, is free for
// reuse.
func (p *Program) wait() Exit {
	all := p.group
	if w, ok := all.(waiter); ok {
		runtime.UnlockOSThread() // the program has another parent
		w.wait()
		p.release()
		return all.exit(nil)
	}
	if waitUnreaped(p.cmd.Process.Pid) {
		p.end()
	}
	err := p.cmd.Wait()
	p.end()
	if state := p.cmd.ProcessState; state != nil {
		return all.exit(state)
	}
	return Exit{Code: -1, By: fmt.Sprintf("an unknown cause (%v)", err)}
}

// end kills the rest of the group, and gives it up.
func (p *Program) end() {
	p.Kill()
	p.release()
}

// release gives up the group, of which nothing runs.
func (p *Program) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.group != nil {
		p.group.release()
		p.group = nil
	}
}

// Exited returns a channel that gets how the program ended, once.
func (p *Program) Exited() <-chan Exit { return p.exited }

// Kill kills the program and its group.
func (p *Program) Kill() { p.signal(group.kill) }

// IsFull reports whether the processes of the program have reached [Limits.Tasks] or
// [Limits.UserTasks], as far as that is known.
func (p *Program) IsFull() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.group != nil && p.group.full()
}

// AskToStop sends a signal of [ParseSignal], or on Windows Ctrl-Break, to the program and its
// group. No signal means SIGTERM.
func (p *Program) AskToStop(with syscall.Signal) {
	p.signal(func(g group) error { return g.terminate(cmp.Or(with, syscall.SIGTERM)) })
}

func (p *Program) signal(send func(group) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.group != nil {
		_ = send(p.group) // an error means that it has ended
	}
}
