package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/need"
)

// started is a running program of a job.
type started struct {
	*exec.Cmd
	folder string
	stderr bytes.Buffer
}

// startProgram runs the program as a worker does, from a checkpoint if there is one.
func startProgram(t *testing.T, p payload, restore []byte) *started {
	t.Helper()
	s := &started{folder: t.TempDir()}
	file := func(name string) string { return filepath.Join(s.folder, name) }
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("payload"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Cmd = exec.CommandContext(t.Context(), os.Args[0], programCommand)
	s.Env = append(os.Environ(), "TMPDIR="+s.folder, "SPOTWORKER_PAYLOAD="+file("payload"),
		"SPOTWORKER_CHECKPOINT="+file("checkpoint"), "SPOTWORKER_RESULT="+file("result"))
	s.Stderr = &s.stderr
	if restore != nil {
		s.Env = append(s.Env, "SPOTWORKER_RESTORE="+file("restore"))
		if err := os.WriteFile(file("restore"), restore, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// end returns the program's exit code.
func (s *started) end(t *testing.T) int {
	t.Helper()
	var exit *exec.ExitError
	if err := s.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return s.ProcessState.ExitCode()
}

func (s *started) read(name string) []byte {
	content, err := os.ReadFile(filepath.Join(s.folder, name))
	if err != nil {
		return nil
	}
	return content
}

// A program that is stopped resumes from its checkpoint, and has the result that
// the lab expects.
func TestProgramResumes(t *testing.T) {
	need.NotOn(t, "windows", "has no SIGTERM")
	p := payload{Seed: "a", Steps: 400, Each: 5 * time.Millisecond}
	first := startProgram(t, p, nil)
	for len(first.read("checkpoint")) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := first.end(t); code != tempFail || first.read("result") != nil {
		t.Fatalf("a stopped program ended with %d and result %q, want %d and none: %s", code, first.read("result"), tempFail, &first.stderr)
	}
	var at position
	if err := json.Unmarshal(first.read("checkpoint"), &at); err != nil || at.Step == 0 {
		t.Fatalf("checkpoint = %s, %v", first.read("checkpoint"), err)
	}
	p.Each = 1
	second := startProgram(t, p, first.read("checkpoint"))
	if code := second.end(t); code != 0 || string(second.read("result")) != string(p.result()) {
		t.Errorf("resumed at step %d it ended with %d and %s, want 0 and %s", at.Step, code, second.read("result"), p.result())
	}
}

// A checkpoint with another hash chain is a failure.
func TestProgramChecksItsCheckpoint(t *testing.T) {
	p := payload{Seed: "a", Steps: 9, Each: 1}
	for name, state := range map[string]position{
		"another step": {Step: 3, Chain: p.after(2).Chain}, "a step that is not there": {Step: 10, Chain: p.after(9).next().Chain},
	} {
		raw, err := json.Marshal(state)
		if err != nil {
			t.Fatal(err)
		}
		if code := startProgram(t, p, raw).end(t); code != 1 {
			t.Errorf("%s: exit code %d, want 1", name, code)
		}
	}
}
