package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Names in the parent of scratch folders.
const (
	scratchPrefix = "spotworker-scratch-" // of the folder of a worker
	removedPrefix = "spotworker-removed-" // of one that is being removed
)

// halfMade is how long a folder without a lock in it is left alone: a worker may
// just be making it.
const halfMade = time.Hour

func lockOf(dir string) string { return filepath.Join(dir, "lock") }

// condemned is a folder that has its last name and is being removed. The lock
// tells other workers that one is at it.
type condemned struct {
	dir  string
	lock *os.File // nil where the system locks no folders
}

func (c condemned) release() {
	if c.lock != nil {
		_ = c.lock.Close()
	}
}

// condemnedHome is the mode of a folder that is being removed. The worker's group
// may enter it, and programs may not: a job that begins meanwhile may have the
// user of one that left a folder in it.
const condemnedHome = 0o730

// remove removes the folder of a dead worker.
func (c condemned) remove(s *Scratch) {
	defer c.release()
	_ = os.Chmod(c.dir, condemnedHome) // where it fails, so does the removal
	if err := s.removeHome(c.dir); err != nil {
		s.log.Warn("leftovers of a dead worker not removed", "folder", c.dir, "error", err)
		return
	}
	s.log.Info("leftovers of a dead worker removed", "folder", c.dir)
}

// condemn renames a scratch folder that nobody needs any more. Whatever ends the
// removal half-way leaves a folder whose name says that it is to be removed.
func condemn(dir string, lock *os.File) (condemned, error) {
	parent, name := filepath.Split(dir)
	c := condemned{dir: filepath.Join(parent, removedPrefix+strings.TrimPrefix(name, scratchPrefix)), lock: lock}
	return c, os.Rename(dir, c.dir)
}

// condemnLeftovers returns the folders that are to be removed: those of workers
// that have died, and those whose removal was cut short. It leaves alone what
// another user has, and a folder that a worker is just making.
func (s *Scratch) condemnLeftovers() []condemned {
	entries, err := os.ReadDir(s.parent)
	if err != nil {
		s.log.Warn("leftovers of dead workers not looked for", "folder", s.parent, "error", err)
		return nil
	}
	var all []condemned
	for _, entry := range entries {
		dir := filepath.Join(s.parent, entry.Name())
		if !entry.IsDir() || !ownedByUs(dir) {
			continue
		}
		var c condemned
		var err error
		switch {
		case strings.HasPrefix(entry.Name(), removedPrefix):
			c.dir = dir
			c.lock, err = lockFolder(dir)
		case strings.HasPrefix(entry.Name(), scratchPrefix):
			c, err = condemnIfDead(dir, time.Now())
		default:
			continue
		}
		switch {
		case err == nil:
			all = append(all, c)
		case !errors.Is(err, errLocked) && !errors.Is(err, fs.ErrNotExist):
			s.log.Warn("leftovers of a dead worker not removed", "folder", dir, "error", err)
		}
	}
	return all
}

// condemnIfDead condemns a scratch folder if nobody holds its locks. It fails with
// errLocked if a worker holds one or may be about to.
func condemnIfDead(dir string, now time.Time) (c condemned, err error) {
	folder, err := lockFolder(dir)
	if err != nil {
		return condemned{}, err
	}
	defer func() {
		if err != nil {
			condemned{lock: folder}.release()
		}
	}()
	file, err := lockAgain(lockOf(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// A worker is making it, or an earlier version was removing it when it died.
		if info, err := os.Lstat(dir); err != nil || now.Sub(info.ModTime()) < halfMade {
			return condemned{}, errors.Join(errLocked, err)
		}
	case err != nil:
		return condemned{}, err
	default:
		_ = file.Close() // where open files cannot be moved, it would prevent the rename
	}
	return condemn(dir, folder)
}
