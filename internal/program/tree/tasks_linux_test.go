package tree

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
)

// TestShare: programs that keep to their shares leave the worker its own tasks.
func TestShare(t *testing.T) {
	for _, row := range []struct {
		limit, slots int
		want         Tasks
	}{
		{0, 8, Tasks{}},
		{8192, 8, Tasks{Job: 988, Jobs: 7904}},
		{8192, 64, Tasks{Job: 120, Jobs: 7680}},
		{400, 4, Tasks{Job: 75, Jobs: 300}},
		{1, 4, Tasks{Job: 1, Jobs: 1}},
	} {
		got := share(row.limit, row.slots)
		if got != row.want {
			t.Errorf("share(%d, %d) = %+v, want %+v", row.limit, row.slots, got, row.want)
		}
		if left := row.limit - got.Job*row.slots; row.limit > row.slots && left < min(row.limit/mostReserved, workerTasks+
			tasksForSlot*row.slots) {
			t.Errorf("share(%d, %d) = %+v leaves the worker %d", row.limit, row.slots, got, left)
		}
	}
}

// TestDivideTasks: this machine has a limit, and more slots have smaller shares.
func TestDivideTasks(t *testing.T) {
	one, many := DivideTasks(1), DivideTasks(16)
	if many.Job < 1 || one.Job <= many.Job || one.Jobs < many.Jobs || many.Job*16 > many.Jobs {
		t.Errorf("DivideTasks(1) = %+v, DivideTasks(16) = %+v, want smaller shares of no more", one, many)
	}
}

// fakeGroup makes a folder with files of a control group.
func fakeGroup(t *testing.T, files map[string]string) (dir string, read func(name string) string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// TestGroupLimitsTasks: the kernel gets the limit, and says when a task was refused.
func TestGroupLimitsTasks(t *testing.T) {
	dir, read := fakeGroup(t, map[string]string{"pids.max": "", "pids.events": "max 0\n"})
	c := &controlGroup{dir: dir}
	for _, g := range []*Groups{{controllers: []string{"memory"}}, {controllers: []string{"pids"}}} {
		if err := g.limit(dir, Limits{Tasks: 50}); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "50"}[g.LimitsTasks()]
		if got := read("pids.max"); got != want {
			t.Errorf("pids.max = %q, want %q with the controllers %v", got, want, g.controllers)
		}
	}
	if c.full() {
		t.Error("a group is full before a task was refused")
	}
	if err := os.WriteFile(filepath.Join(dir, "pids.events"), []byte("max 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !c.full() {
		t.Error("a group is not full after tasks were refused")
	}
}

// TestTasks: in a real group a program that starts others without end gets no more than its
// limit, and that is how its end is explained.
func TestTasks(t *testing.T) {
	b := setup(t, byGroup)
	if b.order("tells its limits") != "tasks true" {
		need.Absent(t, need.Controllers, "no tasks")
	}
	if got := b.order("starts others"); !strings.HasSuffix(got, ", full") {
		t.Errorf("a program with %d tasks in a group of %d: %s, want that the group was full", 4*groupTasks, groupTasks, got)
	}
	b.until("everything ends", func(n int) bool { return n == 0 })
}

// groupTasks is the limit of [TestTasks].
const groupTasks = 50

// TestUserTasksAreSet: shells that name the limit differently set it.
func TestUserTasksAreSet(t *testing.T) {
	for _, shell := range []string{"sh", "dash", "bash"} {
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		out, err := exec.Command(shell, "-c", Limits{UserTasks: 1000}.commands()+` && exec grep "^Max processes" /proc/self/limits`).Output()
		if fields := strings.Fields(string(out)); err != nil || len(fields) < 4 || fields[2] != "1000" || fields[3] != "1000" {
			t.Errorf("%s: %q, %v, want 1000 twice", shell, out, err)
		}
	}
}
