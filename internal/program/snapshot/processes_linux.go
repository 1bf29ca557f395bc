package snapshot

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/host/sandbox"
)

// processes are the children of the init. As PID 1 it inherits and reaps all orphans, so it
// waits for its own children in the same loop.
type processes struct {
	mu    sync.Mutex
	wait  map[int]chan syscall.WaitStatus
	child chan struct{} // has an element after a start

	stopped chan int // gets traced threads that have stopped
}

func newProcesses() *processes {
	p := &processes{wait: map[int]chan syscall.WaitStatus{}, child: make(chan struct{}, 1), stopped: make(chan int, 1)}
	go p.reap()
	return p
}

func (p *processes) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			<-p.child
		case status.Stopped():
			p.stopped <- pid
		default:
			p.mu.Lock()
			if c := p.wait[pid]; c != nil {
				c <- status
				delete(p.wait, pid)
			}
			p.mu.Unlock()
		}
	}
}

// expect returns a channel that gets the status of a process, which may not exist yet.
func (p *processes) expect(pid int) chan syscall.WaitStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := make(chan syscall.WaitStatus, 1)
	p.wait[pid] = c
	return c
}

// stopLimit bounds the wait for a traced thread.
const stopLimit = 10 * time.Second

// awaitStop waits until a traced thread has stopped.
func (p *processes) awaitStop(tid int) error {
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	for {
		select {
		case stopped := <-p.stopped:
			if stopped == tid {
				return nil
			}
		case <-timer.C:
			return fmt.Errorf("it had not stopped after %s", stopLimit)
		}
	}
}

// start starts a process with only the given capabilities of the init's namespace, in the time
// namespace of [startClocks]. Call it in the main thread, which has that namespace, and which
// loses its ambient capabilities.
func (p *processes) start(path string, args []string, attr *os.ProcAttr, capabilities ...uintptr) (pid int, ended chan syscall.WaitStatus,
	err error) {
	if err := (*sandbox.User)(nil).Apply(&exec.Cmd{SysProcAttr: attr.Sys}); err != nil {
		return 0, nil, err
	}
	attr.Sys.AmbientCaps = capabilities
	files := make([]uintptr, len(attr.Files))
	for i, file := range attr.Files {
		files[i] = file.Fd()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &syscall.ProcAttr{Dir: attr.Dir, Env: attr.Env, Files: files, Sys: attr.Sys}
	pid, err = syscall.ForkExec(path, args, a) //nolint:gosec // from the kinds file
	if err != nil {
		return 0, nil, err
	}
	ended = make(chan syscall.WaitStatus, 1)
	p.wait[pid] = ended
	p.started()
	return pid, ended, nil
}

// started wakes the loop that waits for children.
func (p *processes) started() {
	select {
	case p.child <- struct{}{}:
	default:
	}
}
