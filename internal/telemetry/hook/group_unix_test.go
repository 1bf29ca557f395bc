//go:build unix

package hook

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"log/slog"
)

// TestProgramsProcessesEnd: processes of the program end with it when it is killed.
func TestProgramsProcessesEnd(t *testing.T) {
	dir := t.TempDir()
	path, pids := filepath.Join(dir, "on-event"), filepath.Join(dir, "pids")
	script := "#!/bin/sh\nsleep 300 &\necho $! >'" + pids + ".new'\nmv '" + pids + ".new' '" + pids + "'\nwait\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	h := start(program{path, patience}, slog.New(slog.DiscardHandler), 0)
	if _, err := h.Write([]byte(`{"msg":"drained"}`)); err != nil {
		t.Fatal(err)
	}
	var child int
	for end := time.Now().Add(patience); child == 0; time.Sleep(time.Millisecond) {
		if text, err := os.ReadFile(pids); err == nil {
			if child, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
				t.Fatal(err)
			}
		}
		if time.Now().After(end) {
			t.Fatal("the program did not start its process")
		}
	}
	h.Close()
	for end := time.Now().Add(patience); isAlive(child); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d of the program still runs", child)
		}
	}
}

// isAlive reports whether a process runs; a process that ended and has no parent to ask for its
// status does not.
func isAlive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(text), ") Z ")
}
