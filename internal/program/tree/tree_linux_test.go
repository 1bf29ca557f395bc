package tree

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/host/resource"
	"github.com/spotworker/spotworker/internal/test/need"
)

const (
	// workerVariable makes the test binary a worker with one program, whose way of being
	// kept together it names.
	workerVariable = "SPOTWORKER_TEST_TREE"

	// markVariable marks the processes of a program.
	markVariable = "SPOTWORKER_TEST_MARK"
)

// Ways in which a program is kept together.
const (
	byReaper = "reaper"
	byGroup  = "control group"
)

func TestMain(m *testing.M) {
	if way := os.Getenv(workerVariable); way != "" {
		if err := work(way); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// work starts a program, or as many as there are lines on standard input, and reports each
// of them.
func work(way string) error {
	var groups *Groups
	if way == byGroup {
		var err error
		if groups, err = OpenGroups(); err != nil {
			return err
		}
		fmt.Println("groups", groups.LimitsMemory(), groups.LimitsCPUs())
	}
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		order := orders.Text()
		if order == "tells its limits" {
			fmt.Println("tasks", groups.LimitsTasks())
			continue
		}
		p, err := Start(program(order, os.Getenv(markVariable)), limitsOf[order], groups, nil, unread{})
		if err != nil {
			return err
		}
		switch order {
		case "stays":
			fmt.Println("runs")
			continue
		case "stops its reaper":
			if err := syscall.Kill(parentOf(marked(os.Getenv(markVariable))), syscall.SIGSTOP); err != nil {
				return err
			}
			p.Kill()
		case "is killed":
			time.Sleep(100 * time.Millisecond)
			p.Kill()
		case "is asked":
			time.Sleep(100 * time.Millisecond)
			p.AskToStop(0)
		}
		var used, took time.Duration
		if order == "burns" {
			used, took = burn(p)
		}
		switch e := <-p.Exited(); {
		case order == "burns":
			fmt.Println(used, took)
		case e.Full:
			fmt.Printf("%s, full\n", e)
		case order == "ends" && (e.Left > 0) != (way == byReaper): // only a reaper counts them
			fmt.Printf("%s, and %d processes that it left are known\n", e, e.Left)
		case e.OOMKills > 0:
			fmt.Printf("%s, out of memory\n", e)
		default:
			fmt.Println(e)
		}
	}
	return nil
}

// limitsOf are the limits of programs.
var limitsOf = map[string]Limits{
	"fills memory once":  {TotalMemory: 64 << 20},
	"fills memory twice": {TotalMemory: 64 << 20},
	"burns":              {CPUs: cpus},
	"starts others":      {Tasks: groupTasks},
}

const (
	cpus  = 0.2
	burnt = 2 * time.Second

	// burntLeast is half of the processor time that the limit allows in burnt.
	burntLeast = burnt / 10
)

// burn returns how much processor time a program with two busy processes uses in some time,
// at least burnt. On a busy machine that is longer, until half of the limit's share is used.
func burn(p *Program) (used, took time.Duration) {
	usage := func() time.Duration {
		n, _ := resource.CounterIn(filepath.Join(p.group.(*controlGroup).dir, "cpu.stat"), "usage_usec")
		return time.Duration(n) * time.Microsecond
	}
	time.Sleep(200 * time.Millisecond)
	before, begun := usage(), time.Now()
	for took < burnt || used < burntLeast && took < patience {
		time.Sleep(burnt / 10)
		used, took = usage()-before, time.Since(begun)
	}
	p.Kill()
	return used, took
}

// unread leaves the output of a program alone.
type unread struct{}

func (unread) Attach(*exec.Cmd) error { return nil }
func (unread) Started(bool)           {}

// program is a program that leaves processes: one in a session of its own, whose parent has
// ended and which ignores SIGTERM, with a child, and one in its process group.
func program(order, mark string) *exec.Cmd {
	const escape = `(setsid sh -c 'trap "" TERM; sleep 3600 & sleep 3600; sleep 3600' </dev/null >/dev/null 2>&1 &); sleep 3600 & `
	end := "sleep 3600; exit 3"
	if order == "ends" {
		end = "sleep 0.1; exit 7"
	}
	script := escape + end
	const fill = `(head -c 40000000 /dev/zero; sleep 1) | tail -c 40000000 >/dev/null` // tail has it in memory
	switch order {
	case "fills memory once":
		script = fill
	case "fills memory twice":
		script = fill + " & " + fill + " & wait; sleep 3600"
	case "starts others":
		script = fmt.Sprintf("i=0; while [ $i -lt %d ]; do sleep 3600 & i=$((i+1)); done; exit 0", 4*groupTasks)
	case "burns":
		script = "while :; do :; done & while :; do :; done"
	}
	cmd := NewCommand([]string{"/bin/sh", "-c", script}, limitsOf[order])
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), markVariable + "=" + mark}
	cmd.Dir = "/"
	return cmd
}

// marked returns the processes with a mark, without workers.
func marked(mark string) (all []int) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		environ, _ := os.ReadFile("/proc/" + entry.Name() + "/environ")
		if bytes.Contains(environ, []byte(markVariable+"="+mark+"\x00")) && !bytes.Contains(environ, []byte(workerVariable)) {
			all = append(all, pid)
		}
	}
	return all
}

// parentOf returns the parent of the first of some processes.
func parentOf(all []int) (pid int) {
	for _, child := range all {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", child))
		_, after, _ := strings.Cut(string(status), "\nPPid:")
		if _, err := fmt.Sscan(after, &pid); err == nil {
			return pid
		}
	}
	return 0
}

// rig is a worker of its own process.
type rig struct {
	t      *testing.T
	way    string
	mark   string
	parent string // control group of the worker
	groups string // the worker's text about its groups
	cmd    *exec.Cmd
	in     interface{ WriteString(string) (int, error) }
	out    *os.File
}

// setup starts a worker.
func setup(t *testing.T, way string) *rig {
	t.Helper()
	b := &rig{t: t, way: way, mark: fmt.Sprintf("%d.%d", os.Getpid(), time.Now().UnixNano())}
	if way == byGroup {
		b.parent = delegated(t)
	}
	b.start()
	return b
}

// delegated makes a control group as a service manager does for a worker.
func delegated(t *testing.T) string {
	t.Helper()
	own, err := resource.ControlGroup()
	if err != nil {
		need.Absent(t, need.Controllers, err.Error())
	}
	dir, err := os.MkdirTemp(own, "spotworker-test-") //nolint:usetesting // a control group
	if err != nil {
		need.Missing(t, fmt.Sprintf("the right to make control groups (%v)", err))
	}
	t.Cleanup(func() {
		_ = write(filepath.Join(dir, "cgroup.kill"), "1")
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			below, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs"))
			for _, name := range below {
				_ = os.Remove(filepath.Dir(name))
			}
			if err := os.Remove(dir); err == nil {
				return
			}
		}
		t.Errorf("%s is left", dir)
	})
	return dir
}

func (b *rig) start() {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	b.cmd = exec.Command(self)
	b.cmd.Env = append(os.Environ(), workerVariable+"="+b.way, markVariable+"="+b.mark)
	b.cmd.Stderr = os.Stderr
	if b.way == byGroup {
		group, err := os.Open(filepath.Join(b.parent, resource.WorkerGroup))
		if err != nil { // the first worker here
			group, err = os.Open(b.parent)
		}
		if err != nil {
			b.t.Fatal(err)
		}
		defer func() { _ = group.Close() }()
		b.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	}
	theirs, in, err1 := os.Pipe()
	out, theirOut, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		b.t.Fatal(err)
	}
	b.cmd.Stdin, b.cmd.Stdout, b.in, b.out = theirs, theirOut, in, out
	err = b.cmd.Start()
	_ = errors.Join(theirs.Close(), theirOut.Close())
	if err != nil {
		need.Missing(b.t, fmt.Sprintf("a system that starts processes in a control group (%v)", err))
	}
	worker := b.cmd
	b.t.Cleanup(func() { _ = errors.Join(in.Close(), out.Close()); _ = worker.Process.Kill(); _ = worker.Wait() })
	if b.way == byGroup {
		b.groups = b.hear()
	}
}

// patience is how long to wait for required events: a busy machine is slow, not stuck.
const patience = 2 * time.Minute

// hear reads the worker's output.
func (b *rig) hear() string {
	b.t.Helper()
	_ = b.out.SetReadDeadline(time.Now().Add(patience))
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := b.out.Read(one); err != nil {
			b.t.Fatalf("the worker says %q: %v", line, err)
		}
		if one[0] == '\n' {
			return string(line)
		}
		line = append(line, one[0])
	}
}

func (b *rig) order(order string) string {
	b.t.Helper()
	if _, err := b.in.WriteString(order + "\n"); err != nil {
		b.t.Fatal(err)
	}
	return b.hear()
}

// until waits until so many processes of programs are there.
func (b *rig) until(what string, want func(n int) bool) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		n := len(marked(b.mark))
		if want(n) {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("%s: %d processes, not within %s", what, n, patience)
		}
	}
}

// TestNothingIsLeft: with a program every process ends that it has started, those too that
// have left its session and ignore SIGTERM, however the program ends.
func TestNothingIsLeft(t *testing.T) {
	for _, way := range []string{byReaper, byGroup} {
		t.Run(way, func(t *testing.T) {
			b := setup(t, way)
			for order, want := range map[string]string{
				"ends":      "exited with code 7",
				"is killed": "was ended by signal SIGKILL",
				"is asked":  "was ended by signal SIGTERM",
			} {
				if got := b.order(order); got != want {
					t.Errorf("a program that %s %s, want %s", order, got, want)
				}
				if left := marked(b.mark); len(left) > 0 {
					t.Errorf("after a program that %s %d processes are left", order, len(left))
				}
			}
		})
	}
}

// TestNothingIsLeftOfAKilledWorker: when a worker is killed its programs end, and their
// remains end with them or when the next worker starts.
func TestNothingIsLeftOfAKilledWorker(t *testing.T) {
	for _, way := range []string{byReaper, byGroup} {
		t.Run(way, func(t *testing.T) {
			b := setup(t, way)
			for range 2 {
				b.order("stays")
			}
			b.until("two programs with what they start", func(n int) bool { return n >= 10 })
			if err := b.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = b.cmd.Wait()
			if way == byGroup {
				b.start()
			}
			b.until("everything ends", func(n int) bool { return n == 0 })
		})
	}
}

// TestTotalMemory: processes that each stay below the memory and exceed it together are
// all ended, and a single process below it is not.
func TestTotalMemory(t *testing.T) {
	b := setup(t, byGroup)
	if b.groups != "groups true true" {
		need.Absent(t, need.Controllers, "no memory, no processors ("+b.groups+")")
	}
	if got, want := b.order("fills memory once"), "exited with code 0"; got != want {
		t.Errorf("a program with one process of 40 of 64 MiB %s, want %s", got, want)
	}
	if got, want := b.order("fills memory twice"), "was ended by signal SIGKILL, out of memory"; got != want {
		t.Errorf("a program with two processes of 40 of 64 MiB %s, want %s", got, want)
	}
	if left := marked(b.mark); len(left) > 0 {
		t.Errorf("%d processes are left", len(left))
	}
}

// TestCPUs: all processes of a program together get no more than cpus.
func TestCPUs(t *testing.T) {
	b := setup(t, byGroup)
	if b.groups != "groups true true" {
		need.Absent(t, need.Controllers, "no memory, no processors ("+b.groups+")")
	}
	burns, in, _ := strings.Cut(b.order("burns"), " ")
	used, err1 := time.ParseDuration(burns)
	took, err2 := time.ParseDuration(in)
	err := errors.Join(err1, err2)
	if most := time.Duration(float64(took) * cpus); err != nil || used < burntLeast || used > most+most/4 {
		t.Errorf("two busy processes used %s of processor time in %s, %v, want %s with cpus %g", used, took, err, most, cpus)
	}
}

// TestGroupIsRemoved: no control group of a program is left, and none keeps a worker from
// starting.
func TestGroupIsRemoved(t *testing.T) {
	b := setup(t, byGroup)
	b.order("ends")
	if left, err := filepath.Glob(filepath.Join(b.parent, jobPrefix+"*")); len(left) > 0 || err != nil {
		t.Errorf("control groups after the end of the only program = %q, %v, want none", left, err)
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(b.cmd.Process.Pid), "cgroup"))
	if err != nil || !strings.Contains(string(text), filepath.Base(b.parent)+"/"+resource.WorkerGroup+"\n") {
		t.Errorf("control group of the worker = %q, %v, want one of its own", text, err)
	}
}

// TestReaperThatIsStopped: a program that stops its reaper can be ended nevertheless.
func TestReaperThatIsStopped(t *testing.T) {
	b := setup(t, byReaper)
	if got, want := b.order("stops its reaper"), "was ended by signal SIGKILL"; got != want {
		t.Errorf("a program that stops its reaper %s, want %s", got, want)
	}
	if left := marked(b.mark); len(left) > 0 {
		t.Errorf("%d processes are left", len(left))
	}
}

// TestReapersAreUsedAgain: one reaper serves programs that follow each other, tells nothing of
// the worker's environment, and is replaced when it was killed meanwhile.
func TestReapersAreUsedAgain(t *testing.T) {
	t.Setenv(markVariable, "secret")
	run := func() (reaper int) {
		seen := filepath.Join(t.TempDir(), "seen")
		cmd := program("ends", "again")
		last := len(cmd.Args) - 1
		cmd.Args[last] = strings.Replace(cmd.Args[last], "sleep 0.1;", "until [ -e "+seen+" ]; do sleep 0.05; done;", 1)
		p, err := Start(cmd, Limits{}, nil, nil, unread{})
		if err != nil {
			t.Fatal(err)
		}
		reaper = parentOf(marked("again"))
		if err := os.WriteFile(seen, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if e := <-p.Exited(); e.Code != 7 || e.Left == 0 {
			t.Errorf("the program %s, and left %d processes, want code 7 and some", e, e.Left)
		}
		return reaper
	}
	first := run()
	if second := run(); first == 0 || second != first {
		t.Errorf("programs ran below the reapers %d and %d, want the same", first, second)
	}
	if environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", first)); err != nil || bytes.Contains(environ, []byte("secret")) {
		t.Errorf("environment of the reaper = %q, %v, want nothing of the worker's", environ, err)
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if third := run(); third == first {
		t.Error("a program ran below a reaper that was killed")
	}
}

// TestStartFails: the error of a program that cannot be started names it.
func TestStartFails(t *testing.T) {
	cmd := NewCommand([]string{"/dev/null"}, Limits{})
	cmd.Dir = "/"
	if _, err := Start(cmd, Limits{}, nil, nil, unread{}); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "/dev/null") {
		t.Errorf("Start of a file that is no program = %v, want a permission error that names it", err)
	}
}

// BenchmarkStart takes a program that does nothing from its start to its end.
func BenchmarkStart(b *testing.B) {
	for name, begin := range map[string]func(cmd *exec.Cmd) error{
		"alone": func(cmd *exec.Cmd) error { return cmd.Run() },
		"below a reaper": func(cmd *exec.Cmd) error {
			p, err := Start(cmd, Limits{}, nil, nil, unread{})
			if err == nil {
				<-p.Exited()
			}
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				cmd := NewCommand([]string{"/bin/true"}, Limits{})
				cmd.Dir = "/"
				if err := begin(cmd); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
