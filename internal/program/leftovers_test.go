//go:build unix

package program

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/spotworker/spotworker/internal/program/scratch"
)

// TestWorkerKilled: a killed worker's program ends with it, and the next worker removes
// the remains, but no files of a living worker.
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
		found, _ := filepath.Glob(filepath.Join(parent, "spotworker-scratch-*"))
		return len(found)
	}
	living, err := scratch.Open(parent, nil, b.logger())
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
	next, err := scratch.Open(parent, nil, b.logger())
	if err != nil {
		t.Fatal(err)
	}
	if got := folders(); got != 2 {
		t.Errorf("%d scratch folders after the next start, want those of the two that live", got)
	}
	if got := len(b.log.find("leftovers of a dead worker removed")); got != 1 {
		t.Errorf("%d log lines about leftovers, want 1", got)
	}
	for _, s := range []*scratch.Root{living, next} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := folders(); got != 0 {
		t.Errorf("%d scratch folders after the end, want none", got)
	}
}

// TestCleanedAway: a cleaner of /tmp that takes the folder, its parent, or only
// the lock in it costs the worker nothing but a log line.
func TestCleanedAway(t *testing.T) {
	for name, clean := range map[string]func(home string) error{
		"the folder":     os.RemoveAll,
		"its parent too": func(home string) error { return os.RemoveAll(filepath.Dir(home)) },
		"replaced by another": func(home string) error {
			return errors.Join(os.RemoveAll(home), os.Mkdir(home, 0o777))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			before := b.home()
			if err := clean(before); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if w := b.run(b.kind("echo"), "a", nil); string(w.result) != "a" || w.err != nil {
					t.Errorf("job after the cleaner = %q, %v, want it done", w.result, w.err)
				}
			}
			again := b.home()
			if again == before {
				t.Errorf("the folder is still %s", before)
			}
			if got := len(b.log.find("scratch folder was removed from outside and is made again; keep cleaners of temporary files away from it, " +
				"or set --scratch")); got != 1 {
				t.Errorf("%d log lines about it, want 1", got)
			}
			next, err := scratch.Open(b.scratch.Parent(), nil, b.logger())
			if err != nil {
				t.Fatal(err)
			}
			if err := next.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
			if _, err := os.Lstat(again); err != nil {
				t.Errorf("the folder that was made again was taken for a dead worker's: %v", err)
			}
		})
	}
}
