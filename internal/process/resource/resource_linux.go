package resource

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

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

// OOMKills returns how many processes the kernel has killed because memory ran out, in
// the control group of the worker and its programs, or on the whole machine where groups
// are not counted. ok is false if that is unknown.
func OOMKills() (kills int64, ok bool) {
	const cgroups = "/sys/fs/cgroup"
	own, err := os.ReadFile("/proc/self/cgroup")
	if group, found := strings.CutPrefix(strings.TrimSpace(string(own)), "0::"); err == nil && found {
		if kills, ok = counterIn(filepath.Join(cgroups, group, "memory.events"), "oom_kill"); ok {
			return kills, true
		}
	}
	return counterIn("/proc/vmstat", "oom_kill")
}

// counterIn returns the number behind a name in a file with a name and a number a line.
func counterIn(file, name string) (n int64, ok bool) {
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
