package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"

	"github.com/spotworker/spotworker/internal/sandbox"
)

// program is a running command and its children: a process group of its own, where
// the system has process groups.
type program struct {
	cmd    *exec.Cmd
	exited chan exit // gets one value

	mu     sync.Mutex
	reaped bool // the process id may belong to another process by now
}

// start starts a command. Its output goes to out. It returns an error only if the
// command did not start; a program that ends at once has started.
//
// The goroutine that starts it stays on its thread until the program has ended: the
// kernel kills a program when the thread that started it ends. That is how programs
// end with a killed worker (see newCommand).
func start(cmd *exec.Cmd, user *sandbox.User, out *output) (*program, error) {
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
			err = cmd.Start()
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

// wait waits for the end of the program, and then kills the rest of its group: where
// the system allows it, before the process id, which is also the group's, is free for
// reuse.
func (p *program) wait() exit {
	inTime := waitUnreaped(p.cmd.Process.Pid)
	if inTime {
		p.kill()
		p.setReaped()
	}
	err := p.cmd.Wait()
	if !inTime {
		p.kill()
		p.setReaped()
	}
	if state := p.cmd.ProcessState; state != nil {
		return exitOf(state)
	}
	return exit{code: -1, signal: fmt.Sprintf("unknown (%v)", err)}
}

func (p *program) setReaped() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
}

// kill kills the program and its group.
func (p *program) kill() { p.signal(killGroup) }

// askToStop sends SIGTERM to the program and its group.
func (p *program) askToStop() { p.signal(terminateGroup) }

func (p *program) signal(send func(*os.Process) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = send(p.cmd.Process) // an error means that it has ended
	}
}
