//go:build unix

package runtimedir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A name is one worker's while it runs, and there are four workers at most.
func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "here")
	for _, name := range []string{"0", "1", "2", "blue_3"} {
		open(t, path, name)
	}
	_, err := Open(t.Context(), Config{Path: path, Instance: "1"})
	if inUse, ok := errors.AsType[*InUseError](err); !ok || inUse.Instance != "1" || !strings.Contains(err.Error(), "--instance") {
		t.Errorf("Open a name in use = %v, want an InUseError that names the flag", err)
	}
	_, err = Open(t.Context(), Config{Path: path, Instance: "4"})
	full, ok := errors.AsType[*FullError](err)
	if want := []string{"0", "1", "2", "blue_3"}; !ok || !slices.Equal(full.Running, want) || !strings.Contains(err.Error(), "5 requests a second") {
		t.Errorf("Open a fifth = %v, want a FullError with the reason", err)
	}
	if free, err := isFree(filepath.Join(path, instancePrefix+"4")); !free || err != nil {
		t.Errorf("place of the fifth is free = %t, %v, want true", free, err)
	}
}

func TestOpenAfterClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	first, err := Open(t.Context(), Config{Path: path, Instance: "0"})
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	open(t, path, "0")
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Path: file, Instance: "0"}); err == nil || !strings.Contains(err.Error(), "runtime folder") {
		t.Errorf("Open a file = %v, want an error about the runtime folder", err)
	}
	for _, name := range []string{"", "a-b", "a.b", "../0", "é", strings.Repeat("x", 33)} {
		if _, err := Open(t.Context(), Config{Path: t.TempDir(), Instance: name}); err == nil || !strings.Contains(err.Error(), "letters, digits") {
			t.Errorf("Open as %q = %v, want an error that says what a name is", name, err)
		}
	}
}

// TestOpenUnsafe: a folder in which another user can place a link is refused, and
// a link that is there all the same is not followed.
func TestOpenUnsafe(t *testing.T) {
	refused := func(path, problem string) {
		t.Helper()
		_, err := Open(t.Context(), Config{Path: path, Instance: "0"})
		if unsafe, ok := errors.AsType[*UnsafeError](err); !ok || !strings.Contains(unsafe.Problem, problem) || !strings.Contains(err.Error(), "--runtime-dir") {
			t.Errorf("Open %s = %v, want an UnsafeError with %q that names the flag", path, err, problem)
		}
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o770)); err != nil {
		t.Fatal(err)
	}
	refused(open, "may be written by others (mode 0770)")

	own := filepath.Join(t.TempDir(), "own")
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Mkdir(own, 0o700), os.Symlink(own, link)); err != nil {
		t.Fatal(err)
	}
	refused(link, "symbolic link")
	if os.Geteuid() == 0 {
		if err := os.Chown(open, 4711, 4711); err != nil {
			t.Fatal(err)
		}
		refused(open, "belongs to user 4711")
	}

	victim := filepath.Join(t.TempDir(), "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600), os.Symlink(victim, filepath.Join(own, instancePrefix+"0"))); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Path: own, Instance: "0"}); err == nil {
		t.Error("Open over a link = nil, want an error")
	}
	if content, err := os.ReadFile(victim); string(content) != "precious" || err != nil {
		t.Errorf("file behind the link = %q, %v, want it untouched", content, err)
	}
}

// A folder that was emptied under a running worker is as good as a new one.
func TestRemovedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	d := open(t, path, "0")
	done, _, err := d.BeginWork(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if err := os.Remove(filepath.Join(path, workersFile)); err != nil {
		t.Fatal(err)
	}
	if err := open(t, path, "1").Acknowledge(t.Context(), Event{ID: "E"}, true); err == nil {
		t.Error("Acknowledge = nil, want a BusyError: instance 0 has work")
	}
}
