package process

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// scratchPrefix begins the name of every worker's scratch folder.
const scratchPrefix = "spotworker-scratch-"

// Scratch is a worker's folder for the folders of its jobs. Two workers never
// share one.
type Scratch struct {
	dir  string
	lock *os.File // held as long as the worker lives

	mu   sync.Mutex
	left []string // folders of jobs that could not be removed yet
}

// OpenScratch makes a worker's scratch folder below parent, which is
// [os.TempDir] when empty. What workers left there that have died is removed: they
// are told by their locks, which the system lets go when a process ends.
func OpenScratch(parent string, log *slog.Logger) (*Scratch, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	removeLeftovers(parent, log)
	s := &Scratch{}
	if s.dir, err = os.MkdirTemp(parent, scratchPrefix+"*"); err != nil { // mode 0700
		return nil, err
	}
	if s.lock, err = takeLock(lockOf(s.dir)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

// Close removes the folder and all that is in it.
func (s *Scratch) Close() error {
	return errors.Join(s.lock.Close(), removeTree(s.dir))
}

// remove removes the folder of a job that is over, and before it those that could
// not be removed then: a worker that is short of file descriptors cannot look into
// a folder to empty it, and what it left would fill the disk.
func (s *Scratch) remove(dir string) error {
	s.mu.Lock()
	old := s.left
	s.left = nil
	s.mu.Unlock()
	old = slices.DeleteFunc(old, func(dir string) bool { return removeTree(dir) == nil })
	err := removeTree(dir)
	if err != nil {
		old = append(old, dir)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = append(s.left, old...)
	return err
}

func lockOf(dir string) string { return filepath.Join(dir, "lock") }

// removeLeftovers removes the folders of workers that are dead. Those of other
// users are left alone; so is one whose worker is just making it.
func removeLeftovers(parent string, log *slog.Logger) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		log.Warn("leftovers of dead workers not looked for", "folder", parent, "error", err)
		return
	}
	for _, entry := range entries {
		dir := filepath.Join(parent, entry.Name())
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), scratchPrefix) || !ownedByUs(dir) {
			continue
		}
		switch removed, err := removeIfDead(dir); {
		case err != nil:
			log.Warn("leftovers of a dead worker not removed", "folder", dir, "error", err)
		case removed:
			log.Info("leftovers of a dead worker removed", "folder", dir)
		}
	}
}

// removeIfDead removes a scratch folder whose lock nobody holds.
func removeIfDead(dir string) (removed bool, err error) {
	if _, err := os.Lstat(lockOf(dir)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lock, err := takeLock(lockOf(dir))
	if errors.Is(err, errLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, errors.Join(lock.Close(), removeTree(dir))
}

// removeTree removes a folder and all that is in it, also where a program took
// its own right to do so away.
func removeTree(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(name, 0o700) //nolint:gosec // a folder that is about to be removed
		}
		return nil // what stays is what RemoveAll complains about
	})
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove scratch folder: %w", err)
	}
	return nil
}
