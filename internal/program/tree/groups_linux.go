package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/host/gpu"
	"github.com/spotworker/spotworker/internal/host/resource"
)

// Groups makes a control group for each program, below the control group that the service
// manager has delegated to this worker (Delegate= in its unit). Nothing leaves a control
// group: it ends as a whole, and its limits hold for all processes together. A nil
// *Groups makes none.
type Groups struct {
	dir         string // of the delegated group
	controllers []string
}

// jobPrefix begins the names of programs' groups.
const jobPrefix = "job-"

// OpenGroups prepares the control group that this process is in. It moves the process
// into a group below it, since only groups without processes of their own may limit their
// children, and ends the processes that it finds in groups of programs.
func OpenGroups() (*Groups, error) {
	dir, err := resource.ControlGroup()
	if err != nil {
		return nil, err
	}
	return openGroups(dir)
}

// openGroups prepares the control group in a folder.
func openGroups(dir string) (*Groups, error) {
	own := filepath.Join(dir, resource.WorkerGroup)
	if err := os.Mkdir(own, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("the control group of this process is not delegated to it (Delegate= in its unit): %w", err)
	}
	if err := moveAll(dir, own); err != nil {
		return nil, fmt.Errorf("move this process into %s: %w", own, err)
	}
	g := &Groups{dir: dir}
	for _, controller := range []string{"memory", "cpu", "pids"} {
		if write(filepath.Join(dir, "cgroup.subtree_control"), "+"+controller) == nil {
			g.controllers = append(g.controllers, controller)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, jobPrefix+"*"))
	for _, name := range left {
		(&controlGroup{dir: name}).remove()
	}
	return g, err
}

// moveAll moves the processes of one group to another.
func moveAll(from, to string) error {
	for range 10 { // a process may start another while they are moved
		all, err := processesOf(from)
		if err != nil || len(all) == 0 {
			return err
		}
		for _, pid := range all {
			if err := write(filepath.Join(to, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
				return err
			}
		}
	}
	return errors.New("processes are started there all the time")
}

// LimitsMemory reports whether groups limit the memory of all processes of a program.
func (g *Groups) LimitsMemory() bool { return g != nil && slices.Contains(g.controllers, "memory") }

// LimitsCPUs reports whether groups limit the processors that all processes of a program
// use.
func (g *Groups) LimitsCPUs() bool { return g != nil && slices.Contains(g.controllers, "cpu") }

// LimitsTasks reports whether groups limit the processes and threads of a program.
func (g *Groups) LimitsTasks() bool { return g != nil && slices.Contains(g.controllers, "pids") }

// HidesGPUs returns nil if groups hide GPUs from programs, or why they do not.
func (g *Groups) HidesGPUs() error {
	if g == nil {
		return errors.New("jobs have no control groups (--control-groups)")
	}
	c, err := g.make(Limits{GPUs: &gpu.Visible{}})
	if err == nil {
		c.remove()
	}
	return err
}

// make makes a group for a program.
func (g *Groups) make(l Limits) (*controlGroup, error) {
	dir, err := os.MkdirTemp(g.dir, jobPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	c := &controlGroup{dir: dir}
	if err := g.limit(dir, l); err != nil {
		c.remove()
		return nil, fmt.Errorf("limit a control group: %w", err)
	}
	return c, nil
}

// limit sets the limits of a group.
func (g *Groups) limit(dir string, l Limits) (err error) {
	set := func(name, text string) {
		if err == nil {
			err = write(filepath.Join(dir, name), text)
		}
	}
	if l.TotalMemory > 0 && g.LimitsMemory() {
		set("memory.max", strconv.FormatInt(l.TotalMemory, 10))
		set("memory.oom.group", "1")                          // a program without one of its processes would hang or give a wrong result
		_ = write(filepath.Join(dir, "memory.swap.max"), "0") // there is none without swap
	}
	if l.CPUs > 0 && g.LimitsCPUs() {
		const period = 100_000 // µs
		set("cpu.max", fmt.Sprintf("%d %d", max(int(l.CPUs*period), 1000), period))
	}
	if l.Tasks > 0 && g.LimitsTasks() {
		set("pids.max", strconv.Itoa(l.Tasks))
	}
	if l.GPUs != nil && err == nil {
		err = l.GPUs.Attach(dir)
	}
	return err
}

// controlGroup is the control group of a program.
type controlGroup struct {
	processGroup
	dir      string
	oomKills int64
	wasFull  bool
}

// gated makes a command wait, before it becomes the program, until something can be read
// from descriptor 3: by then it is in its group. clone3 could start it there, but a sandbox
// that forbids namespaces forbids clone3.
const gated = `read -r go <&3 && exec 3<&- && exec "$@"`

// start starts a command in the group.
func (c *controlGroup) start(cmd *exec.Cmd) error {
	gate, open, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = open.Close() }()
	program := cmd.Path
	if program == selfExe { // which is the shell's own for a shell
		if program, err = os.Executable(); err != nil {
			_ = gate.Close()
			return err
		}
	}
	cmd.Args = append([]string{systemShell, "-c", gated, "sh", program}, cmd.Args[1:]...)
	cmd.Path, cmd.ExtraFiles = systemShell, []*os.File{gate}
	err = cmd.Start()
	_ = gate.Close()
	if err != nil {
		return err
	}
	c.id = cmd.Process.Pid
	err = write(filepath.Join(c.dir, "cgroup.procs"), strconv.Itoa(c.id))
	if err == nil {
		_, err = open.WriteString("\n")
	}
	if err != nil {
		return abandon(cmd, fmt.Errorf("put the program into its control group: %w", err))
	}
	return nil
}

// kill ends all processes of the group at once.
func (c *controlGroup) kill() error {
	err := write(filepath.Join(c.dir, "cgroup.kill"), "1")
	if errors.Is(err, fs.ErrNotExist) { // Linux before 5.14
		_ = write(filepath.Join(c.dir, "cgroup.freeze"), "1") // so that they start no others
		var all []int
		if all, err = processesOf(c.dir); err == nil {
			for _, pid := range all {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		_ = write(filepath.Join(c.dir, "cgroup.freeze"), "0")
	}
	return err
}

const (
	// endGrace is how long to wait for the end of killed processes.
	endGrace = 5 * time.Second

	endPoll = time.Millisecond
)

// release waits for the end of all processes of a killed group, and removes it.
func (c *controlGroup) release() {
	c.oomKills, _ = resource.CounterIn(filepath.Join(c.dir, "memory.events"), "oom_kill")
	c.wasFull = c.full()
	c.remove()
}

// full reports whether the kernel has refused the group a task.
func (c *controlGroup) full() bool {
	refused, _ := resource.CounterIn(filepath.Join(c.dir, "pids.events"), "max")
	return refused > 0
}

// remove ends the processes in the group, and removes it. If that fails, the next worker
// removes it, or the end of the unit.
func (c *controlGroup) remove() {
	for late := time.Now().Add(endGrace); ; time.Sleep(endPoll) {
		if err := os.Remove(c.dir); err == nil || errors.Is(err, fs.ErrNotExist) || time.Now().After(late) {
			return
		}
		_ = c.kill() // EBUSY: it has processes
	}
}

func (c *controlGroup) exit(state *os.ProcessState) Exit {
	e := c.processGroup.exit(state)
	e.OOMKills, e.Full = c.oomKills, c.wasFull
	return e
}

// processesOf returns the processes in a group.
func processesOf(dir string) (all []int, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			all = append(all, pid)
		}
	}
	return all, nil
}

// write writes to a file of the control group file system.
func write(name, text string) error {
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
