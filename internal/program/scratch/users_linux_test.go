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

// usersVariable marks the process that acts as a deployed worker.
const usersVariable = "SPOTWORKER_TEST_SCRATCH_USERS"

// TestLeftoversOfUsers: the remains of a dead worker's jobs are removed with their users'
// rights, and programs that run during that time cannot enter them. The test runs in a
// process like a deployed worker's: not root, with the capabilities of the unit alone.
func TestLeftoversOfUsers(t *testing.T) {
	if os.Getenv(usersVariable) != "" {
		leftoversOfUsers(t)
		return
	}
	if out, err := isolated.AsWorker(t, isolated.WorkerCapabilities(), []string{usersVariable + "=1"}, "-test.count=1", "-test.run",
		"^TestLeftoversOfUsers$"); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

func leftoversOfUsers(t *testing.T) {
	users, err := sandbox.Open(sandbox.Config{Range: sandbox.Range{First: 60700, Last: 60709}, Slots: 4})
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
