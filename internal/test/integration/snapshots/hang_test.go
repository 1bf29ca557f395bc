//go:build integration && linux

package snapshots

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/program/printed"
	"github.com/spotworker/spotworker/internal/program/snapshot"
	"github.com/spotworker/spotworker/internal/program/tree"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestHangingCRIU ends a program whose criu does not end, since it may be half frozen.
func TestHangingCRIU(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	t.Parallel()
	dir, criu := t.TempDir(), filepath.Join(t.TempDir(), "criu")
	script := "#!/bin/sh\nif [ \"$1\" = --version ]; then echo Version: 4.1; else exec sleep 1000; fi\n"
	syscall.ForkLock.RLock() // a process that is started meanwhile would hold the file open, which then cannot be run
	err := os.WriteFile(criu, []byte(script), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	cmd := tree.NewCommand([]string{"/bin/sleep", "1000"}, tree.Limits{})
	cmd.Dir = dir
	s, err := snapshot.NewSession(snapshot.Config{CRIU: criu, Job: dir, Limit: time.Second}, cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out := printed.New(t.Context(), slog.New(slog.DiscardHandler))
	p, err := tree.Start(cmd, tree.Limits{}, nil, nil, out)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Finish()
	defer p.Kill()
	if err := s.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(t.Context(), "snapshot-1", false); !errors.Is(err, snapshot.ErrLost) {
		t.Errorf("Take with a criu that hangs = %v, want ErrLost", err)
	}
	select {
	case exit := <-p.Exited():
		if exit.Code == 0 {
			t.Errorf("the program ended with %v, want an error", exit)
		}
	case <-time.After(patience):
		t.Error("the program still runs")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "snapshot-*")); len(left) > 0 {
		t.Errorf("%q is left of an incomplete snapshot", left)
	}
}
