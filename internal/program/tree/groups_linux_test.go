package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/host/gpu"
	"github.com/spotworker/spotworker/internal/host/resource"
	"github.com/spotworker/spotworker/internal/test/need"
)

// The kernel keeps to the limits in [TestTotalMemory], [TestCPUs] and [TestTasks], where it
// has the controllers. The tests below hold on every machine: a folder with the same files
// stands for the control group.

// TestGroupLimits: the kernel gets memory and cpus in its own units, if the worker may
// limit them.
func TestGroupLimits(t *testing.T) {
	for _, row := range []struct {
		name        string
		controllers []string
		limits      Limits
		want        map[string]string // by file; files that are not named stay empty
	}{
		{"memory", []string{"memory", "cpu"}, Limits{TotalMemory: 64 << 20},
			map[string]string{"memory.max": "67108864", "memory.oom.group": "1", "memory.swap.max": "0"}},
		{"cpus", []string{"memory", "cpu"}, Limits{CPUs: 1.5}, map[string]string{"cpu.max": "150000 100000"}},
		{"the fewest cpus that the kernel takes", []string{"cpu"}, Limits{CPUs: 0.001}, map[string]string{"cpu.max": "1000 100000"}},
		{"both", []string{"memory", "cpu"}, Limits{TotalMemory: 1, CPUs: 0.2},
			map[string]string{"memory.max": "1", "memory.oom.group": "1", "memory.swap.max": "0", "cpu.max": "20000 100000"}},
		{"no limits", []string{"memory", "cpu"}, Limits{}, nil},
		{"no controllers", nil, Limits{TotalMemory: 64 << 20, CPUs: 1}, nil},
		{"another controller", []string{"cpu"}, Limits{TotalMemory: 64 << 20, CPUs: 1}, map[string]string{"cpu.max": "100000 100000"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			files := map[string]string{"memory.max": "", "memory.oom.group": "", "memory.swap.max": "", "cpu.max": ""}
			dir, read := fakeGroup(t, files)
			g := &Groups{controllers: row.controllers}
			if err := g.limit(dir, row.limits); err != nil {
				t.Fatal(err)
			}
			for name := range files {
				if got := read(name); got != row.want[name] {
					t.Errorf("%s = %q, want %q", name, got, row.want[name])
				}
			}
		})
	}
}

// TestGroupLimitsAreNeeded: a program does not run without a limit that the kernel refuses.
// A kernel without swap has no limit of it.
func TestGroupLimitsAreNeeded(t *testing.T) {
	both := []string{"memory", "cpu"}
	for missing, limits := range map[string]Limits{
		"memory.max":       {TotalMemory: 64 << 20},
		"memory.oom.group": {TotalMemory: 64 << 20},
		"cpu.max":          {CPUs: 1},
	} {
		files := map[string]string{"memory.max": "", "memory.oom.group": "", "cpu.max": ""}
		dir, _ := fakeGroup(t, files)
		if err := (&Groups{controllers: both}).limit(dir, limits); err != nil {
			t.Errorf("limit without memory.swap.max = %v, want nil", err)
		}
		delete(files, missing)
		dir, _ = fakeGroup(t, files)
		if err := (&Groups{controllers: both}).limit(dir, limits); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("limit without %s = %v, want that it does not exist", missing, err)
		}
	}
	dir := t.TempDir()
	g := &Groups{dir: dir, controllers: both}
	if c, err := g.make(Limits{CPUs: 1}); err == nil || !strings.Contains(err.Error(), "limit a control group") {
		t.Errorf("make with a limit that cannot be set = %v, %v, want an error about the limit", c, err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("control groups left = %v, %v, want none", left, err)
	}
}

// TestGroupHidesGPUs: the kernel lets a program open the device of its own GPU, where there is a driver, and
// no other one. The device program of a group above still holds.
func TestGroupHidesGPUs(t *testing.T) {
	g := &Groups{dir: delegated(t)}
	if err := g.HidesGPUs(); err != nil {
		need.Missing(t, fmt.Sprintf("device programs (%v)", err))
	}
	root := t.TempDir()
	dev := filepath.Join(root, "dev")
	err := os.Mkdir(dev, 0o700)
	for name, minor := range map[string]uint32{"nvidia0": 0, "nvidia1": 1, "nvidia253": 253, "nvidiactl": 255} {
		err = errors.Join(err, unix.Mknod(filepath.Join(dev, name), unix.S_IFCHR|0o600, int(unix.Mkdev(195, minor))))
	}
	if err != nil {
		need.Missing(t, fmt.Sprintf("the right to make devices (%v)", err))
	}
	pool := gpu.Open(gpu.Config{Hide: true, Root: root, Log: slog.New(slog.DiscardHandler)})
	defer pool.Close()
	if err := pool.Visible([]string{"0", "1"}).Attach(g.dir); err != nil { // as a service manager does
		t.Fatal(err)
	}
	const script = `for name in nvidia0 nvidia1 nvidia253 nvidiactl; do (exec <"$0/$name") 2>&1 | grep -q "not permitted" || echo $name; done`
	for name, row := range map[string]struct {
		gpus *gpu.Visible
		want string
	}{
		"one":  {pool.Visible([]string{"1"}), "nvidia1 nvidiactl"},
		"none": {pool.Visible(nil), "nvidiactl"},
		"two":  {pool.Visible([]string{"0", "2"}), "nvidia0 nvidiactl"},
	} {
		c, err := g.make(Limits{GPUs: row.gpus})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cmd := exec.Command(systemShell, "-c", script, dev)
		cmd.Stdout, cmd.SysProcAttr = &out, &syscall.SysProcAttr{Setpgid: true}
		if err = c.start(cmd); err == nil {
			err = cmd.Wait()
		}
		c.remove()
		if got := strings.Join(strings.Fields(out.String()), " "); got != row.want || err != nil {
			t.Errorf("with %s: %q, %v, want %q", name, got, err, row.want)
		}
	}
}

// TestGroupTellsOOMKills: an end for lack of memory is known from the group's counters, which
// are read before the group is removed.
func TestGroupTellsOOMKills(t *testing.T) {
	for events, want := range map[string]int64{
		"low 0\nhigh 0\nmax 7\noom 2\noom_kill 3\n": 3,
		"oom 0\noom_kill 0\n":                       0,
	} {
		synctest.Test(t, func(t *testing.T) { // the folder has files, so that it cannot be removed: release gives up after endGrace
			dir, _ := fakeGroup(t, map[string]string{"memory.events": events, "cgroup.kill": ""})
			c := &controlGroup{dir: dir}
			c.release()
			if c.oomKills != want {
				t.Errorf("processes killed with the events %q = %d, want %d", events, c.oomKills, want)
			}
		})
	}
}

// TestOpenGroupsInAFolder: a worker has the controllers that its group accepts, and removes
// the groups that another worker left.
func TestOpenGroupsInAFolder(t *testing.T) {
	for name, row := range map[string]struct {
		files map[string]string
		has   bool
	}{
		"with controllers":    {map[string]string{"cgroup.procs": "", "cgroup.subtree_control": ""}, true},
		"without controllers": {map[string]string{"cgroup.procs": ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := fakeGroup(t, row.files)
			left := filepath.Join(dir, jobPrefix+"left")
			if err := os.Mkdir(left, 0o700); err != nil {
				t.Fatal(err)
			}
			g, err := openGroups(dir)
			if err != nil || g.LimitsMemory() != row.has || g.LimitsCPUs() != row.has || g.LimitsTasks() != row.has {
				t.Errorf("openGroups = %+v, %v, want that it limits everything: %t", g, err, row.has)
			}
			if _, err := os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the group of an earlier program: %v, want that it does not exist", err)
			}
			if info, err := os.Stat(filepath.Join(dir, resource.WorkerGroup)); err != nil || !info.IsDir() {
				t.Errorf("the worker's own group: %v, want a folder", err)
			}
		})
	}
}
