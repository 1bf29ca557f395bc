package snapshot

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// programProcesses returns the PIDs of a frozen program: those from firstPID on that criu traces.
func programProcesses() ([]int, error) {
	all, err := processesInside()
	return slices.DeleteFunc(all, func(pid int) bool { return !isTraced(pid) }), err
}

// processesInside returns the PIDs from firstPID on: the program's, and perhaps criu's.
func processesInside() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && pid >= firstPID {
			all = append(all, pid)
		}
	}
	return all, nil
}

// checkOutside returns a [*RefusedError] if a process of the job is not among those that criu has
// frozen: it would be lost. criu and its hook are a session of their own.
func checkOutside(frozen []int, criu int) error {
	all, err := processesInside()
	if err != nil {
		return err
	}
	for _, pid := range all {
		name, state, session := stateOf(pid)
		if slices.Contains(frozen, pid) || session == criu || state == "" || state == "Z" {
			continue
		}
		return &RefusedError{Reason: fmt.Sprintf("process %d (%s) of the job has left the program's tree of processes, so it would be lost",
			pid, name), Known: true}
	}
	return nil
}

// stateOf returns the name of a process, its state, and its session, of /proc/PID/stat; no state for
// one that has ended.
func stateOf(pid int) (name, state string, session int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := bytes.LastIndexByte(text, ')')
	words := strings.Fields(string(text[end+1:]))
	if end < 0 || len(words) < 4 {
		return "", "", 0
	}
	_, name, _ = strings.Cut(string(text[:end]), "(")
	session, _ = strconv.Atoi(words[3])
	return name, words[0], session
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

// openFiles returns the files outside of the job's folder that a process has open for reading. It
// returns a [*RefusedError] if the process writes one: the snapshot would not have the file as it
// was.
func openFiles(pid int) (all []string, err error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil //nolint:nilerr // it has ended
	}
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		target, err := os.Readlink(name)
		if err != nil || !strings.HasPrefix(target, "/") || isInside(target) || isSystem(target) || strings.HasSuffix(target, deleted) {
			continue
		}
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if flags := flagsOf(pid, entry.Name()); flags&unix.O_ACCMODE != unix.O_RDONLY {
			return nil, &RefusedError{Reason: fmt.Sprintf("the program has %s open for writing, which is not in the job's folder: "+
				"let it write to its working folder or TMPDIR", target), Known: true}
		}
		all = append(all, target)
	}
	return all, nil
}

// isSystem reports whether a file is the kernel's, with content that is this machine's.
func isSystem(path string) bool {
	return strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/") || strings.HasPrefix(path, "/dev/")
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
		if !isInside(path) && !strings.HasSuffix(path, deleted) && !isSystem(path) && !strings.HasPrefix(path, "/memfd:") &&
			!slices.Contains(all, path) {
			all = append(all, path)
		}
	}
	return all
}
