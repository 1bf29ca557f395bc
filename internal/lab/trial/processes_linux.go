package trial

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// observesProcesses reports whether this system tells which processes a program has.
const observesProcesses = true

// processesOf returns the processes whose environment has a path below a scratch folder:
// the processes of that VM's program, also outside its process group. A process that is
// ending no longer has a command line.
func processesOf(scratch string) map[int]child {
	found := map[int]child{}
	entries, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range entries {
		environ, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(environ, []byte("SPOTWORKER_PAYLOAD="+scratch+"/")) {
			continue // another user's, gone, or not ours
		}
		dir := filepath.Dir(name)
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if p, ok := readProcess(dir); ok && p.Command != "" {
			p.PID = pid
			found[pid] = p
		}
	}
	return found
}

// readProcess reads /proc/PID/stat and the command line. A zombie has ended.
func readProcess(dir string) (p child, ok bool) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return p, false
	}
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	const state, parent, group, start = 0, 1, 2, 19
	if end < 0 || len(fields) <= start || fields[state] == "Z" || fields[state] == "X" {
		return p, false
	}
	p.Parent, _ = strconv.Atoi(fields[parent])
	p.Group, _ = strconv.Atoi(fields[group])
	p.born, _ = strconv.ParseUint(fields[start], 10, 64)
	line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	p.Command = strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	return p, true
}

// end kills a process if it is still the same.
func (p child) end() {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return // it has ended
	}
	defer func() { _ = unix.Close(fd) }()
	if now, ok := readProcess(fmt.Sprintf("/proc/%d", p.PID)); ok && now.born == p.born {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // fails only if it has ended
	}
}
