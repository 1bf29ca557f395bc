package resource

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Space returns how much of a folder's file system is free for this user and its size,
// in bytes; 0, 0 if that is unknown.
func Space(dir string) (free, size int64) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize
}

// WorkerGroup is the control group of a worker below the delegated control group.
const WorkerGroup = "spotworker"

// ControlGroup returns the folder of the control group of this process, or of the one
// above it if that is a [WorkerGroup].
func ControlGroup() (dir string, err error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(own)) {
		path, found := strings.CutPrefix(strings.TrimSpace(line), "0::")
		root, mounted := controlGroups(string(mounts))
		if found && mounted {
			return strings.TrimSuffix(filepath.Join(root, path), "/"+WorkerGroup), nil
		}
	}
	return "", errors.New("this system has no control groups of version 2")
}

// ownGroup is [ControlGroup], found once: a worker moves only into its [WorkerGroup].
var ownGroup = sync.OnceValues(ControlGroup)

// controlGroups returns where control groups of version 2 are mounted.
func controlGroups(mounts string) (dir string, ok bool) {
	for line := range strings.Lines(mounts) {
		mount, kind, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(mount); strings.HasPrefix(kind, "cgroup2 ") && len(fields) > 4 {
			return fields[4], true
		}
	}
	return "", false
}

// OOMKills returns how many processes the kernel has killed because memory ran out, in
// the control group of the worker and its programs, or on the whole machine where groups
// are not counted. ok is false if that is unknown.
func OOMKills() (kills int64, ok bool) {
	if kills, ok = groupKills(); ok {
		return kills, true
	}
	return CounterIn("/proc/vmstat", "oom_kill")
}

// groupKills returns the count of the control group of the worker and its programs.
func groupKills() (kills int64, ok bool) {
	dir, err := ownGroup()
	if err != nil {
		return 0, false
	}
	return CounterIn(filepath.Join(dir, "memory.events"), "oom_kill")
}

// CounterIn returns the number behind a name in a file with a name and a number a line.
func CounterIn(file, name string) (n int64, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if number, found := strings.CutPrefix(line, name+" "); found {
			n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
