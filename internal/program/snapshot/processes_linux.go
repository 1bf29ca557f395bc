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

	traced  map[int]*syscall.WaitStatus // threads that are traced, once they have stopped or ended
	stopped chan struct{}               // has an element after that
}

func newProcesses() *processes {
	p := &processes{
		wait: map[int]chan syscall.WaitStatus{}, child: make(chan struct{}, 1),
		traced: map[int]*syscall.WaitStatus{}, stopped: make(chan struct{}, 1),
	}
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
		default:
			p.mu.Lock()
			if _, traced := p.traced[pid]; traced {
				p.traced[pid] = new(status)
				wake(p.stopped)
			}
			if c := p.wait[pid]; c != nil && !status.Stopped() {
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

// Expect remembers what happens to a thread that is traced from now on.
func (p *processes) Expect(tid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traced[tid] = nil
}

// Forget is for a thread that is traced no longer.
func (p *processes) Forget(tid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.traced, tid)
}

// Await waits until a traced thread has stopped or ended.
func (p *processes) Await(tid int, limit time.Duration) (syscall.WaitStatus, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		p.mu.Lock()
		status := p.traced[tid]
		if status != nil {
			p.traced[tid] = nil
		}
		p.mu.Unlock()
		if status != nil {
			return *status, nil
		}
		select {
		case <-p.stopped:
		case <-timer.C:
			return 0, fmt.Errorf("it had not stopped after %s", limit)
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
	wake(p.child)
	return pid, ended, nil
}

// wake puts an element into a channel that has none.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
