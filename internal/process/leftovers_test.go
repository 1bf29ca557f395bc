//go:build unix

package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// TestWorkerKilled: with a worker that is killed ends its program, and the next
// worker removes what is left, but not what a living one has.
func TestWorkerKilled(t *testing.T) {
	b := setup(t)
	parent, pidFile := t.TempDir(), filepath.Join(t.TempDir(), "pid")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	worker := exec.CommandContext(t.Context(), program)
	worker.Env = append(os.Environ(), roleVariable+"=worker", "SCRATCH="+parent, "PID_FILE="+pidFile)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	b.until("the program", func() bool { text, _ := os.ReadFile(pidFile); return len(text) > 0 })
	text, _ := os.ReadFile(pidFile)
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	folders := func() int {
		found, _ := filepath.Glob(filepath.Join(parent, scratchPrefix+"*"))
		return len(found)
	}
	living, err := OpenScratch(parent, b.logger())
	if err != nil {
		t.Fatal(err)
	}
	if got := folders(); got != 2 {
		t.Errorf("%d scratch folders beside a living worker, want its own and that of the other", got)
	}
	if got := b.log.find("leftovers of a dead worker not removed"); len(got) != 0 {
		t.Errorf("log = %v, want no word about the folder of a worker that lives", got)
	}
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = worker.Wait() // killed
	if runtime.GOOS == "linux" {
		b.until("the program's end", func() bool { return !alive(pid) })
	}
	next, err := OpenScratch(parent, b.logger())
	if err != nil {
		t.Fatal(err)
	}
	if got := folders(); got != 2 {
		t.Errorf("%d scratch folders after the next start, want those of the two that live", got)
	}
	if got := len(b.log.find("leftovers of a dead worker removed")); got != 1 {
		t.Errorf("%d log lines about leftovers, want 1", got)
	}
	for _, s := range []*Scratch{living, next} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := folders(); got != 0 {
		t.Errorf("%d scratch folders after the end, want none", got)
	}
}

// What only looks like a scratch folder stays.
func TestLeftoversOfOthers(t *testing.T) {
	b := setup(t)
	parent, elsewhere := t.TempDir(), t.TempDir()
	for _, name := range []string{"other", scratchPrefix + "without-a-lock"} {
		if err := os.Mkdir(filepath.Join(parent, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(lockOf(elsewhere), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(parent, scratchPrefix+"link")); err != nil {
		t.Fatal(err)
	}
	removeLeftovers(parent, b.logger())
	if left, _ := os.ReadDir(parent); len(left) != 3 {
		t.Errorf("%d of 3 folders of others are left", len(left))
	}
	if _, err := os.Stat(lockOf(elsewhere)); err != nil {
		t.Errorf("what a link leads to was removed: %v", err)
	}
}
