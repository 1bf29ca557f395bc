//go:build unix

package ownfiles

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestHostile: links that leave the folder and pipes are left out, and nothing waits for them.
func TestHostile(t *testing.T) {
	b := setup(t, "*")
	b.write("s.1", "a", time.Hour)
	in := func(name string) string { return filepath.Join(b.dir, name) }
	if err := errors.Join(syscall.Mkfifo(in("pipe"), 0o600), os.Symlink("s.1", in("latest")), os.Symlink("/etc/passwd", in("absolute")),
		os.Symlink("../x", in("outside")), os.Symlink("..", in("up")), os.Chmod(in("s.1"), 0o700)); err != nil {
		t.Fatal(err)
	}
	to := b.copy("")
	b.wantFiles(to, "s.1=a", "latest=a")
	if target, err := os.Readlink(filepath.Join(to, "latest")); target != "s.1" {
		t.Errorf("latest = %q, %v, want a link to s.1", target, err)
	}
	if info, err := os.Stat(filepath.Join(to, "s.1")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode = %v, %v, want an executable file", info, err)
	}
	// A file that became a pipe since it was found.
	info, err := os.Lstat(in("s.1"))
	if err := errors.Join(err, os.Remove(in("s.1")), syscall.Mkfifo(in("s.1"), 0o600)); err != nil {
		t.Fatal(err)
	}
	ok, err := b.taker.make(t.Context(), b.next(), func(c *copying, _ string, _ os.FileInfo) error { return c.copy(t.Context(), "s.1", info) })
	if ok || err != nil {
		t.Errorf("copy of a file that became a pipe = %t, %v, want none", ok, err)
	}
}

// TestNamesThatAreNoUTF8: names may have any bytes, also names of folders, and also of folders in
// the middle of a pattern.
func TestNamesThatAreNoUTF8(t *testing.T) {
	for _, pattern := range []string{"*", "state", "state/*", "*/*/*"} {
		b := setup(t, pattern)
		b.write("state/caf\xe9/\xff", "a", time.Hour)
		to := b.copy("")
		b.wantFiles(to, "state/caf\xe9/\xff=a")
		b.write("state/caf\xe9/\xff", "ab", 0)
		b.restart(pattern)
		b.write("state/caf\xe9/\xff", "abc", 0)
		if ok, err := b.taker.Last(b.now, b.next(), false); !ok || err != nil {
			t.Errorf("Last with %s = %t, %v, want a checkpoint", pattern, ok, err)
		}
	}
}
