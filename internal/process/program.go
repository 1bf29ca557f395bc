package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"

	"github.com/spotworker/spotworker/internal/sandbox"
)

// program is a running command and the processes that it started: where the
// system has process groups, a group of its own.
type program struct {
	cmd    *exec.Cmd
	exited chan exit // gets one value

	mu     sync.Mutex
	reaped bool // the process id may be somebody else's by now
}

// start runs a command. Its output goes to out. The error says why it did not
// start; a program that ends at once has started.
//
// The goroutine that starts it stays on its thread until the program has ended:
// the kernel ends a program together with the thread that started it, which is
// how programs end with a worker that is killed (see newCommand).
func start(cmd *exec.Cmd, user *sandbox.User, out *output) (*program, error) {
	if err := user.Do(func() error { _, err := os.Stat(cmd.Dir); return err }); err != nil {
		return nil, fmt.Errorf("its working directory: %w", err) // else the program would be said to be missing
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

// wait waits for the end of the program, and then ends what it left behind. Where
// the system allows it, that comes before its process id, and with it the
// group's, is given back.
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

// kill ends the program and all of its group at once.
func (p *program) kill() { p.signal(killGroup) }

// askToStop asks the program and all of its group to end.
func (p *program) askToStop() { p.signal(terminateGroup) }

func (p *program) signal(send func(*os.Process) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = send(p.cmd.Process) // it is gone already, or nothing can be done
	}
}
