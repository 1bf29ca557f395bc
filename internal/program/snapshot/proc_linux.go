package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// programProcesses returns the PIDs of the program: those from firstPID on that are not
// criu's. criu and its hook are descendants of the init in sessions of their own.
func programProcesses() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid < firstPID {
			continue
		}
		if isTraced(pid) {
			all = append(all, pid)
		}
	}
	return all, nil
}

// isTraced reports whether a process is frozen by criu.
func isTraced(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if tracer, ok := strings.CutPrefix(line, "TracerPid:"); ok {
			return strings.TrimSpace(tracer) != "0"
		}
	}
	return false
}

// lastThread returns the highest id of the threads of a process, and of its group and
// session.
func lastThread(pid int) int {
	last := pid
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, entry := range entries {
		if id, err := strconv.Atoi(entry.Name()); err == nil {
			last = max(last, id)
		}
	}
	return last
}

// checkFiles returns a [*RefusedError] if a process writes a file outside of its folder: the
// snapshot would not have the file as it was.
func checkFiles(pid int) error {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil //nolint:nilerr // it has ended
	}
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		target, err := os.Readlink(name)
		if err != nil || !strings.HasPrefix(target, "/") || isInside(target) || strings.HasSuffix(target, deleted) {
			continue
		}
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if flags := flagsOf(pid, entry.Name()); flags&unix.O_ACCMODE != unix.O_RDONLY {
			return &RefusedError{Reason: fmt.Sprintf("the program has %s open for writing, which is not in the job's folder: "+
				"let it write to its working folder or TMPDIR", target), Known: true}
		}
	}
	return nil
}

// deleted is the end of the name of a file that was deleted.
const deleted = " (deleted)"

func isInside(path string) bool {
	return strings.HasPrefix(path, Place+"/") || strings.HasPrefix(path, sharedMemory+"/")
}

// flagsOf returns the flags of a descriptor; 0 if they cannot be read.
func flagsOf(pid int, fd string) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, _ := strconv.ParseInt(strings.TrimSpace(value), 8, 64)
			return int(flags)
		}
	}
	return 0
}

// mappedFiles returns the files outside of the job's folder in the memory of a process.
func mappedFiles(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	return parseMaps(string(text))
}

func parseMaps(text string) (all []string) {
	for line := range strings.Lines(text) {
		at := strings.IndexByte(line, '/')
		if at < 0 {
			continue
		}
		path := strings.TrimSuffix(line[at:], "\n")
		if !isInside(path) && !strings.HasSuffix(path, deleted) && !strings.HasPrefix(path, "/dev/") && !strings.HasPrefix(path, "/memfd:") &&
			!slices.Contains(all, path) {
			all = append(all, path)
		}
	}
	return all
}
