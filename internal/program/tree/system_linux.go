package tree

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/program/tree/reaper"
)

// memoryFlag is the flag of ulimit for private writable memory. On Linux it counts mapped
// memory as well as the heap, but not reserved address space, which Go and Java use much.
const memoryFlag = "-d"

// NewCommand returns a command in a process group of its own, which ends with the
// worker even if that is killed.
func NewCommand(argv []string, l Limits) *exec.Cmd {
	argv = l.argv(argv)
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // from the kinds file; supervise ends it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// begin starts a command so that all its processes can be ended, those too that leave
// its process group: in a control group where there are any, otherwise as a user of its
// own, otherwise below a reaper.
func begin(cmd *exec.Cmd, l Limits, groups *Groups, user *sandbox.User) (group, error) {
	namespaces := inNamespaces(cmd)
	if namespaces {
		throughMapper(cmd, user)
	}
	switch {
	case groups != nil:
		g, err := groups.make(l)
		if err != nil {
			return nil, err
		}
		if err := g.start(cmd); err != nil {
			g.remove()
			return nil, err
		}
		return g, nil
	case user != nil:
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return &usersGroup{processGroup: processGroup{cmd.Process.Pid}, user: user, limit: l.UserTasks}, nil
	case namespaces: // which end with their first process
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return processGroup{cmd.Process.Pid}, nil
	default:
		return beginReaped(cmd)
	}
}

// usersGroup is the program of a user that has no other.
type usersGroup struct {
	processGroup
	user    *sandbox.User
	limit   int       // of tasks; 0 for none
	next    time.Time // when they may be counted again
	wasFull bool
}

// release ends the processes of the user in other groups and sessions. What fails is
// tried again when the job's folder is removed.
func (g *usersGroup) release() {
	g.next = time.Time{}
	g.wasFull = g.full()
	_ = g.user.KillAll()
}

// countFactor bounds the share of a processor that counting tasks takes.
const countFactor = 50

// full counts the tasks of the user, since the kernel keeps no record of them. Processes
// that /proc hides from the worker do not count.
func (g *usersGroup) full() bool {
	began := time.Now()
	if g.limit == 0 || g.wasFull || began.Before(g.next) {
		return g.wasFull
	}
	g.wasFull = g.user.Tasks() >= g.limit
	g.next = time.Now().Add(countFactor * time.Since(began))
	return g.wasFull
}

func (g *usersGroup) exit(state *os.ProcessState) Exit {
	e := g.processGroup.exit(state)
	e.Full = g.wasFull
	return e
}

// reaped is a program below a reaper.
type reaped struct {
	reaper  *reaper.Reaper
	process *os.Process // the reaper
	late    *time.Timer // runs out when the reaper has not obeyed
	ended   func() (status syscall.WaitStatus, left int, ok bool)
}

// beginReaped starts a command below a reaper.
func beginReaped(cmd *exec.Cmd) (group, error) {
	r, err := reaper.Command(cmd)
	if err != nil {
		return nil, err
	}
	err = cmd.Start()
	if failed := r.Started(err == nil); err != nil || failed != nil {
		if err == nil {
			err = abandon(cmd, failed)
		}
		return nil, err
	}
	return &reaped{reaper: r, process: cmd.Process}, nil
}

func (r *reaped) terminate(with syscall.Signal) error { return r.reaper.Terminate(with) }

// killGrace is how long a reaper may take to obey. A program may have stopped it, if both
// have the same user.
const killGrace = 10 * time.Second

func (r *reaped) kill() error {
	if r.late == nil {
		r.late = time.AfterFunc(killGrace, func() { _ = r.process.Kill() }) // with which the program ends
	}
	_ = r.process.Signal(syscall.SIGCONT)
	return r.reaper.Kill()
}

// release is called when the reaper has ended, and so has everything below it.
func (r *reaped) release() {
	if r.late != nil {
		r.late.Stop()
	}
	status, left, ok := r.reaper.Status()
	r.ended = func() (syscall.WaitStatus, int, bool) { return status, left, ok }
	r.reaper.Close()
}

// full returns false: the worker's user has the tasks of all programs.
func (*reaped) full() bool { return false }

func (r *reaped) exit(state *os.ProcessState) Exit {
	if status, left, ok := r.ended(); ok {
		e := exitOf(status)
		e.Left = left
		return e
	}
	return processGroup{}.exit(state) // the reaper was killed
}

func killOne(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }

// waitUnreaped waits for the end of a process without reaping it, and reports
// whether that succeeded.
func waitUnreaped(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// mostKillable is the score of the process that the kernel kills first when memory
// runs out.
const mostKillable = "1000"

// tune makes the kernel kill the program rather than the worker when memory runs
// out. The program's children inherit the score.
func tune(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(mostKillable), 0o600) // it has ended, or /proc is not there
}
