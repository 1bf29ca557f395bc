//go:build integration && linux

package vmapp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/host/resource"
	"github.com/spotworker/spotworker/internal/test/need"
)

// leaverKind is a kind of the test's package whose program leaves a process in a session
// of its own, outside its process group, and then waits until it is stopped.
const leaverKind = `"leaver": {"command": ["sh", "-c", 
"(setsid sleep 3217 </dev/null >/dev/null 2>&1 &); sleep 3218"], "max_silence": "5m"},
    `

// controlGroups: each program is in a control group of its own, below the worker's group
// from systemd; the group ends as a whole with the job.
func (m *machine) controlGroups(t *testing.T) {
	m.deploy(t, published("1.3.0", archiveOf(newVersion), m.azure.settings("spot_4", "SPOTWORKER_CONCURRENCY=2")))
	leavers := []string{"leaver-1", "leaver-2"}
	for _, id := range leavers {
		m.azure.produce(t, "put", "--kind", "leaver", "--id", id, "--payload", "{}")
	}
	await(t, "two programs with a process that left their sessions", func() bool {
		return len(sleepers(t, "3217")) == 2 &&
			len(sleepers(t, "3218")) == 2
	})
	unit := groupOf(t, property(t, "spotworker.service", "MainPID"))
	if filepath.Base(unit) != resource.WorkerGroup {
		if line := "programs have no control groups"; !strings.Contains(logged(workerLog), line) {
			t.Errorf("the worker is in the control group %q, and its log has no line %q", unit, line)
		}
		need.Absent(t, need.Controllers, fmt.Sprintf("systemd delegates no control group to the worker, which is in %q", unit))
	}
	jobs := map[string]int{}
	for _, pid := range append(sleepers(t, "3217"), sleepers(t, "3218")...) {
		group := groupOf(t, pid)
		if filepath.Dir(group) != filepath.Dir(unit) || !strings.HasPrefix(filepath.Base(group), "job-") {
			t.Errorf("process %s of a job is in the control group %q, want one of its job beside the worker's %q", pid, group, unit)
		}
		jobs[group]++
	}
	for group, processes := range jobs {
		if len(jobs) != 2 || processes != 2 {
			t.Errorf("control group %s has %d of the %d processes looked for, want 2 groups with 2 each", group, processes, 4)
		}
	}
	if missing := missingControllers(t, filepath.Dir(unit)); len(missing) > 0 {
		t.Logf("not tried here: limits of %s for all processes of a job; this kernel has these controllers in hierarchies of version 1",
			strings.Join(missing, ", "))
	}
	m.azure.evict(t, "spot_4")
	await(t, "the end of all processes of both jobs", func() bool { return len(sleepers(t, "3217"))+len(sleepers(t, "3218")) == 0 })
	await(t, "the end of both control groups", func() bool {
		left, err := filepath.Glob(filepath.Join(unifiedRoot(t), filepath.Dir(unit), "job-*"))
		return err == nil && len(left) == 0
	})
	m.azure.cancel(t, leavers...)
	m.remove(t)
}

// sleepers returns the processes that sleep for so many seconds.
func sleepers(t *testing.T, seconds string) (pids []string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if text, err := os.ReadFile(line); err == nil && string(text) == "sleep\x00"+seconds+"\x00" {
			pids = append(pids, filepath.Base(filepath.Dir(line)))
		}
	}
	return pids
}

// groupOf returns the control group of version 2 that a process is in.
func groupOf(t *testing.T, pid string) string {
	t.Helper()
	for line := range strings.Lines(read(t, "/proc/"+pid+"/cgroup")) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return group
		}
	}
	return ""
}

// unifiedRoot returns where control groups of version 2 are mounted.
func unifiedRoot(t *testing.T) string {
	t.Helper()
	for line := range strings.Lines(read(t, "/proc/self/mounts")) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "cgroup2" {
			return fields[1]
		}
	}
	t.Fatal("no control groups of version 2 are mounted")
	return ""
}

// missingControllers returns which controllers the groups of jobs would need and do not
// have.
func missingControllers(t *testing.T, unit string) (missing []string) {
	t.Helper()
	has := " " + strings.TrimSpace(read(t, filepath.Join(unifiedRoot(t), unit, "cgroup.controllers"))) + " "
	for _, name := range []string{"memory", "cpu", "pids"} {
		if !strings.Contains(has, " "+name+" ") {
			missing = append(missing, name)
		}
	}
	return missing
}
