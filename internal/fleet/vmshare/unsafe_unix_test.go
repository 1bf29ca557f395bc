//go:build unix

package vmshare

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpenUnsafe: a folder in which another user can place a link is refused, and
// a link that is there all the same is not followed.
func TestOpenUnsafe(t *testing.T) {
	refused := func(path, problem string) {
		t.Helper()
		_, err := Open(t.Context(), Config{Path: path, Instance: "0"})
		if unsafe, ok := errors.AsType[*UnsafeError](err); !ok || !strings.Contains(unsafe.Problem, problem) ||
			!strings.Contains(err.Error(), "--runtime-dir") {
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
	if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600),
		os.Symlink(victim, filepath.Join(own, instancePrefix+"0"))); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Path: own, Instance: "0"}); err == nil {
		t.Error("Open over a link = nil, want an error")
	}
	if content, err := os.ReadFile(victim); string(content) != "precious" || err != nil {
		t.Errorf("file behind the link = %q, %v, want it untouched", content, err)
	}
}
