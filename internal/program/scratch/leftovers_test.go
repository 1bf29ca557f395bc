//go:build unix

package scratch

import (
	"bufio"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestAwait: a start and a slot wait for the removal of files for a while only.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Root
		if !s.await(leftoversGrace, func() { time.Sleep(leftoversGrace - time.Second) }) {
			t.Error("await of a short removal = false, want true")
		}
		begun, ended := time.Now(), false
		if s.await(leftoversGrace, func() { time.Sleep(time.Hour); ended = true }) {
			t.Error("await of a long removal = true, want false")
		}
		if took := time.Since(begun); took != leftoversGrace {
			t.Errorf("await of a long removal took %s, want %s", took, leftoversGrace)
		}
		if s.removals.Wait(); !ended {
			t.Error("the removal has not continued")
		}
	})
}

// TestLeftoversOfOthers: files that only look like leftovers stay.
func TestLeftoversOfOthers(t *testing.T) {
	b := &rig{t: t}
	parent, elsewhere := t.TempDir(), t.TempDir()
	for _, name := range []string{"other", scratchPrefix + "just-being-made"} {
		if err := os.Mkdir(filepath.Join(parent, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(lockOf(elsewhere), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{scratchPrefix, removedPrefix} {
		if err := os.Symlink(elsewhere, filepath.Join(parent, prefix+"link")); err != nil {
			t.Fatal(err)
		}
	}
	b.openAndClose(parent)
	if left := foldersIn(t, parent); len(left) != 4 {
		t.Errorf("of the 4 of others %q are left", left)
	}
	if _, err := os.Stat(lockOf(elsewhere)); err != nil {
		t.Errorf("what a link leads to was removed: %v", err)
	}
}

// openAndClose is a worker that starts and ends.
func (b *rig) openAndClose(parent string) {
	b.t.Helper()
	s, err := Open(parent, nil, b.logger())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		b.t.Errorf("Close = %v", err)
	}
}

// foldersIn lists the entries of a folder without the lock of scratch folders.
func foldersIn(t *testing.T, parent string) []string {
	t.Helper()
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".spotworker-scratch.lock") {
			names = append(names, entry.Name())
		}
	}
	return names
}

// TestRemovalCutShort: a removal that ended half-way, with the lock gone and the rest
// still there, is finished by the next worker, whether this version began it or an
// earlier one.
func TestRemovalCutShort(t *testing.T) {
	b := &rig{t: t}
	parent := t.TempDir()
	for _, name := range []string{removedPrefix + "by-this-version", scratchPrefix + "by-an-earlier-one"} {
		rest := filepath.Join(parent, name, "job-1")
		old := time.Now().Add(-2 * creationGrace)
		if err := errors.Join(
			os.MkdirAll(rest, 0o700), os.WriteFile(filepath.Join(rest, "large"), make([]byte, 1000), 0o600),
			os.Chtimes(filepath.Join(parent, name), old, old),
		); err != nil {
			t.Fatal(err)
		}
	}
	b.openAndClose(parent)
	if left := foldersIn(t, parent); len(left) != 0 {
		t.Errorf("%q is left, want nothing", left)
	}
	if got := b.logged("leftovers of a dead worker removed"); got != 2 {
		t.Errorf("%d log lines about leftovers, want 2", got)
	}
}

// TestRemoverKilled: if a worker is killed while it removes a dead worker's folder, the
// next worker removes the rest, and two do not remove the same.
func TestRemoverKilled(t *testing.T) {
	b := &rig{t: t}
	parent := t.TempDir()
	s, err := Open(parent, nil, b.logger())
	if err != nil {
		t.Fatal(err)
	}
	dir := s.home.dir
	if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	s.home.release() // the worker has died
	c, err := condemnIfDead(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b.openAndClose(parent) // while that one removes it
	if left := foldersIn(t, parent); len(left) != 1 {
		t.Errorf("%q is there while another worker removes it, want that alone", left)
	}
	if err := os.Remove(lockOf(c.dir)); err != nil {
		t.Fatal(err)
	}
	c.release() // the remover has died as well
	b.openAndClose(parent)
	if left := foldersIn(t, parent); len(left) != 0 {
		t.Errorf("%q is left, want nothing", left)
	}
}

// A cleaner that takes only the file with the lock does not make the worker look
// dead.
func TestLockCleanedAway(t *testing.T) {
	b := &rig{t: t}
	s, err := Open(t.TempDir(), nil, b.logger())
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * creationGrace)
	if err := errors.Join(os.Remove(lockOf(s.home.dir)), os.Chtimes(s.home.dir, old, old)); err != nil {
		t.Fatal(err)
	}
	b.openAndClose(s.parent)
	if !s.home.isThere() {
		t.Error("the folder of a living worker was removed")
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
}

// TestParentLock: what others have made of the lock's name neither stops a
// worker nor is followed.
func TestParentLock(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	for name, spoil := range map[string]func(name string) error{
		"a link":   func(name string) error { return os.Symlink(elsewhere, name) },
		"a folder": func(name string) error { return os.Mkdir(name, 0o700) },
		"a pipe":   func(name string) error { return syscall.Mkfifo(name, 0o600) },
		"another user's": func(name string) error {
			return errors.Join(os.WriteFile(name, nil, 0o666), os.Chown(name, os.Geteuid()+1, -1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, parent := &rig{t: t}, t.TempDir()
			lock, err := lockShared(parent)
			if err != nil {
				t.Fatal(err)
			}
			_ = lock.Close()
			if err := errors.Join(os.Remove(lock.Name()), spoil(lock.Name())); err != nil {
				need.Missing(t, "symbolic links: "+err.Error())
			}
			if lock, err := lockShared(parent); err == nil || errors.Is(err, errLocked) {
				t.Errorf("lockShared = %v, %v, want an error that does not make a start wait", lock, err)
			}
			b.openAndClose(parent)
			if got := b.logged("lock of the scratch folders not taken; this worker continues without it"); got == 0 {
				t.Error("the log does not say that the lock cannot be used")
			}
			if _, err := os.Lstat(elsewhere); err == nil {
				t.Error("a link was followed")
			}
		})
	}
}

// starts is how many times four workers start together.
var starts = flag.Int("starts", proof.Times(5, 20), "how many times workers start together in TestStartTogether")

// TestStartTogether: four processes that start at the same moment, beside the remains of
// killed ones, get a folder each and keep it.
func TestStartTogether(t *testing.T) {
	const together = 4
	parent, lost := t.TempDir(), 0
	for round := range *starts {
		var workers []*starter
		for range together {
			workers = append(workers, newStarter(t, parent))
		}
		for _, order := range []string{"open", "check"} {
			for _, w := range workers {
				w.tell(t, order)
			}
			for _, w := range workers {
				if got := w.hear(t); got != order {
					lost++
					t.Errorf("round %d: %s", round, got)
				}
			}
		}
		for i, w := range workers {
			w.end(t, (round+i)%2 == 0)
		}
	}
	(&rig{t: t}).openAndClose(parent)
	if left := foldersIn(t, parent); len(left) != 0 {
		t.Errorf("%q is left", left)
	}
	t.Logf("%d starts of %d workers at once: %d lost their folder", *starts, together, lost)
}

// starter is a process that opens a scratch folder on request.
type starter struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	words  *bufio.Scanner
}

func newStarter(t *testing.T, parent string) *starter {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &starter{cmd: exec.CommandContext(t.Context(), program)}
	s.cmd.Env = append(os.Environ(), roleVariable+"=1", "SCRATCH="+parent, "GORACE=atexit_sleep_ms=0")
	s.cmd.Stderr = os.Stderr
	if s.orders, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.words = bufio.NewScanner(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := s.hear(t); got != "ready" {
		t.Fatalf("a worker says %q, want that it is ready", got)
	}
	return s
}

func (s *starter) tell(t *testing.T, order string) {
	t.Helper()
	if _, err := io.WriteString(s.orders, order+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (s *starter) hear(t *testing.T) string {
	t.Helper()
	if !s.words.Scan() {
		t.Fatalf("a worker ended: %v", s.words.Err())
	}
	return s.words.Text()
}

// end ends the worker, or kills it, which leaves its folder behind.
func (s *starter) end(t *testing.T, kill bool) {
	t.Helper()
	if kill {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // killed
		return
	}
	_ = s.orders.Close()
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("a worker ended with %v", err)
	}
}
