//go:build unix

package hook

import (
	"os"
	"os/exec"
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
	child := awaitChild(t, pids)
	h.Close()
	awaitEnd(t, child)
	if err := os.Remove(pids); err != nil {
		t.Fatal(err)
	}

	// A worker that is killed.
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), killed+"="+path)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	child = awaitChild(t, pids)
	_ = worker.Process.Kill()
	_ = worker.Wait()
	awaitEnd(t, child)
}

// killed is a variable with the program that a worker runs until it is killed.
const killed = "SPOTWORKER_TEST_KILLED"

func init() { //nolint:gochecknoinits // before the flags of tests are read
	if path := os.Getenv(killed); path != "" {
		h := start(program{path, patience}, slog.New(slog.DiscardHandler), 0)
		_, _ = h.Write([]byte(`{"msg":"drained"}`))
		time.Sleep(patience)
		os.Exit(1)
	}
}

// awaitChild returns the process that the program started.
func awaitChild(t *testing.T, pids string) (child int) {
	t.Helper()
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
	return child
}

func awaitEnd(t *testing.T, child int) {
	t.Helper()
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
