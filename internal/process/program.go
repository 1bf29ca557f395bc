package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"

	"github.com/spotworker/spotworker/internal/sandbox"
)

// program is a running command and its children.
type program struct {
	cmd    *exec.Cmd
	exited chan exit // gets one value

	mu    sync.Mutex
	group *group // nil after its end: the id may belong to other processes by then
}

// start starts the command of a kind. Its output goes to out. It returns an error only if the
// command did not start; a program that ends at once has started.
//
// The goroutine that starts it stays on its thread until the program has ended: the
// kernel kills a program when the thread that started it ends. That is how programs
// end with a killed worker (see newCommand).
func start(cmd *exec.Cmd, k *Kind, user *sandbox.User, out *output) (*program, error) {
	if err := user.Do(func() error { _, err := os.Stat(cmd.Dir); return err }); err != nil {
		return nil, fmt.Errorf("its working directory: %w", err) // otherwise the error would name the program
	}
	p := &program{cmd: cmd, exited: make(chan exit, 1)}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := user.Apply(cmd)
		if err == nil {
			err = out.attach(cmd)
		}
		if err == nil {
			err = p.begin(k)
		}
		out.started(err == nil)
		started <- err
		if err == nil {
			p.exited <- p.wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	_ = user.Do(func() error { tune(cmd.Process.Pid); return nil })
	return p, nil
}

// begin starts the command with the processes that it will have in a group.
func (p *program) begin(k *Kind) error {
	if err := p.cmd.Start(); err != nil {
		return err
	}
	g, err := newGroup(p.cmd.Process, k)
	if err != nil {
		return errors.Join(err, p.cmd.Process.Kill(), ignoreExit(p.cmd.Wait()))
	}
	p.group = g
	return nil
}

// ignoreExit returns nil for the exit code of a program that was killed.
func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}

// wait waits for the end of the program, and then kills the rest of its group: where
// the system allows it, before the process id, which is also the group's, is free for
// reuse.
func (p *program) wait() exit {
	inTime := waitUnreaped(p.cmd.Process.Pid)
	if inTime {
		p.kill()
		p.release()
	}
	err := p.cmd.Wait()
	if !inTime {
		p.kill()
		p.release()
	}
	if state := p.cmd.ProcessState; state != nil {
		return exitOf(state)
	}
	return exit{code: -1, by: fmt.Sprintf("an unknown cause (%v)", err)}
}

// release gives up the group, which has ended.
func (p *program) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.group.release()
	p.group = nil
}

// kill kills the program and its group.
func (p *program) kill() { p.signal((*group).kill) }

// askToStop sends SIGTERM, or on Windows Ctrl-Break, to the program and its group.
func (p *program) askToStop() { p.signal((*group).terminate) }

func (p *program) signal(send func(*group) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.group != nil {
		_ = send(p.group) // an error means that it has ended
	}
}
