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
	program *reaper.Program
	ended   Exit // how it ended, after wait
}

// beginReaped starts a command below a reaper.
func beginReaped(cmd *exec.Cmd) (group, error) {
	program, err := reaper.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &reaped{program: program}, nil
}

func (r *reaped) terminate(with syscall.Signal) error { return r.program.Terminate(with) }

func (r *reaped) kill() error { return r.program.Kill() }

// wait implements [waiter].
func (r *reaped) wait() {
	exit, ok := r.program.Wait()
	if !ok { // the reaper was killed, and with it the program
		exit.Status = syscall.WaitStatus(syscall.SIGKILL)
	}
	r.ended = exitOf(exit.Status)
	r.ended.Left = exit.Left
}

func (r *reaped) release() { r.program.Release() }

// full returns false: the worker's user has the tasks of all programs.
func (*reaped) full() bool { return false }

func (r *reaped) exit(*os.ProcessState) Exit { return r.ended }

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
