package tree

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/host/resource"
)

// DivideTasks divides the tasks that this machine allows the worker: TasksMax= of its
// unit, the limit of its user, or the kernel's limit for all.
func DivideTasks(slots int) Tasks {
	limit := math.MaxInt
	for _, file := range append(taskFiles(), "/proc/sys/kernel/threads-max", "/proc/sys/kernel/pid_max") {
		if n, ok := numberIn(file); ok {
			limit = min(limit, n)
		}
	}
	if n := userLimit(); n > 0 {
		limit = min(limit, n)
	}
	if limit == math.MaxInt {
		return Tasks{}
	}
	return share(limit, slots)
}

// SharedTasks returns how many tasks the user of this process may have when one of its
// programs starts another: the worker keeps the rest. It is 0 if the user has no limit, or is
// root, whose tasks the kernel does not limit.
// The limit of a control group would not do: the tasks of a user may be in others too.
var SharedTasks = sync.OnceValue(func() int {
	if isRoot() {
		return 0
	}
	return share(userLimit(), 1).Jobs
})

// isRoot reports whether the user is the machine's root. Root of a user namespace is another
// user outside of it.
func isRoot() bool {
	const allIDs = 1<<32 - 1
	var inside, outside, ids uint32
	text, _ := os.ReadFile("/proc/self/uid_map") // without it the limit is set
	_, err := fmt.Sscan(string(text), &inside, &outside, &ids)
	return err == nil && os.Geteuid() == 0 && outside == 0 && ids == allIDs
}

// userLimit returns the limit on the tasks of the user of this process, 0 for none.
func userLimit() int {
	var user unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &user); err != nil || user.Cur > math.MaxInt32 {
		return 0
	}
	return int(user.Cur)
}

// taskFiles returns the files with the limits of the control group of this process and of
// those above it.
func taskFiles() (files []string) {
	dir, err := resource.ControlGroup()
	if err != nil {
		return nil
	}
	for {
		files = append(files, filepath.Join(dir, "pids.max"))
		above := filepath.Dir(dir)
		if above == dir {
			return files
		}
		if _, err := os.Stat(filepath.Join(above, "cgroup.procs")); err != nil {
			return files // the file system of control groups ends here
		}
		dir = above
	}
}

// numberIn returns the positive number in a file; ok is false for a text such as "max".
func numberIn(file string) (n int, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return n, err == nil && n > 0
}
