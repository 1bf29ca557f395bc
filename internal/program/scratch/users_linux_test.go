package scratch

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/test/isolated"
)

// TestLeftoversOfUsers: the remains of a dead worker's jobs are removed with their users'
// rights, and programs that run during that time cannot enter them. The test runs in a
// process like a deployed worker's: not root, with the capabilities of the unit alone.
func TestLeftoversOfUsers(t *testing.T) { isolated.RunAsWorker(t, leftoversOfUsers) }

// TestUserThatCannotBeEnded: a user whose rest cannot be removed at the end of its job is given
// to no other job before it can, and then is: otherwise a worker runs out of users.
func TestUserThatCannotBeEnded(t *testing.T) { isolated.RunAsWorker(t, userThatCannotBeEnded) }

func userThatCannotBeEnded(t *testing.T) {
	users := map[uint32]*sandbox.Users{}
	for _, id := range []uint32{62720, 62721} {
		var err error
		if users[id], err = sandbox.Open(sandbox.Config{Range: sandbox.Range{First: id, Last: id}, Slots: 1}); err != nil {
			t.Fatal(err)
		}
	}
	b, parent := &rig{t: t}, t.TempDir()
	if err := os.Chmod(filepath.Dir(parent), 0o711); err != nil { // programs of other users pass through
		t.Fatal(err)
	}
	s, err := Open(parent, users[62720], b.logger())
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	other, err := users[62721].Take()
	if err != nil {
		t.Fatal(err)
	}
	shared := "/tmp/spotworker-test-" + filepath.Base(parent) + "-" + filepath.Base(s.home.dir)
	theirs := filepath.Join(shared, "of-another")
	if err := errors.Join(
		f.User.Do(func() error { return errors.Join(os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777)) }),
		other.Do(func() error { return os.MkdirAll(filepath.Join(theirs, "full"), 0o700) })); err != nil {
		t.Fatal(err)
	}
	removeTheirs := func() error {
		return errors.Join(f.User.Do(func() error { return os.Chmod(shared, 0o777) }), // a removal took the other's right to enter
			other.Do(func() error { return sandbox.RemoveTree(theirs) }))
	}
	t.Cleanup(func() { _ = errors.Join(removeTheirs(), f.User.Do(func() error { return sandbox.RemoveTree(shared) })) })
	if err := s.Remove(f); err == nil {
		t.Fatal("Remove with a folder of another user's in the user's own folder = nil, want an error: else the test shows nothing")
	}
	if next, err := s.NewFolder(); err == nil {
		t.Errorf("NewFolder while something of the only user is left = %+v, want none", next)
	}
	if err := removeTheirs(); err != nil {
		t.Fatal(err)
	}
	next, err := s.NewFolder()
	if err != nil {
		t.Fatalf("NewFolder when the rest can be removed = %v, want a folder", err)
	}
	if _, err := os.Lstat(shared); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the rest of the user's earlier job: %v, want that it is gone", err)
	}
	if err := errors.Join(s.Remove(next), s.Close()); err != nil {
		t.Error(err)
	}
}

func leftoversOfUsers(t *testing.T) {
	users, err := sandbox.Open(sandbox.Config{Range: sandbox.Range{First: 62700, Last: 62709}, Slots: 4})
	if err != nil {
		t.Fatal(err)
	}
	b, parent := &rig{t: t}, t.TempDir()
	if err := os.Chmod(filepath.Dir(parent), 0o711); err != nil { // programs of other users pass through
		t.Fatal(err)
	}
	worker, err := Open(filepath.Join(parent, "of-another"), users, b.logger())
	if err != nil {
		t.Fatal(err)
	}
	dead, err := Open(parent, users, b.logger())
	if err != nil {
		t.Fatal(err)
	}
	f, err := dead.NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.User.Do(func() error { return os.MkdirAll(filepath.Join(f.Dir, "a/b"), 0o700) }); err != nil {
		t.Fatal(err)
	}
	dead.home.release() // it dies
	c, err := condemnIfDead(dead.home.dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(c.dir, filepath.Base(f.Dir))
	enter := func() error { return f.User.Do(func() error { _, err := os.ReadDir(left); return err }) }
	if err := enter(); err != nil {
		t.Errorf("before the removal its user enters %s: %v, want that it can: else the test shows nothing", left, err)
	}
	if err := os.Chmod(c.dir, condemnedHome); err != nil {
		t.Fatal(err)
	}
	if err := enter(); !errors.Is(err, os.ErrPermission) {
		t.Errorf("during the removal a program of the same user enters %s: %v, want that it is not permitted", left, err)
	}
	c.remove(worker)
	if _, err := os.Lstat(c.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Lstat of the leftovers = %v, want that they are gone: %v", err, b.text.String())
	}
	users.Put(f.User)
	if err := worker.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
}
