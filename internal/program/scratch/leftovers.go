package scratch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/host/sandbox"
)

// Names in the parent of scratch folders.
const (
	scratchPrefix = "spotworker-scratch-" // of a worker's folder
	removedPrefix = "spotworker-removed-" // of a folder that is being removed
)

// creationGrace is how old a folder without a lock must be to be removed: a worker
// may just be making a younger one.
const creationGrace = time.Hour

func lockOf(dir string) string { return filepath.Join(dir, "lock") }

// condemned is a folder that was renamed for its removal. Its lock tells other
// workers that one is removing it.
type condemned struct {
	dir  string
	lock *os.File // nil where the system locks no folders
}

func (c condemned) release() {
	if c.lock != nil {
		_ = c.lock.Close()
	}
}

// condemnedHome is the mode of a folder that is being removed. The worker's group may
// enter it, and programs may not: a job that begins during the removal may have the user
// of an earlier job that left a folder in it.
const condemnedHome = 0o730

// remove removes the folder of a dead worker.
func (c condemned) remove(s *Root) {
	defer c.release()
	_ = os.Chmod(c.dir, condemnedHome) // where it fails, so does the removal
	if err := s.removeHome(c.dir); err != nil {
		s.log.Warn("leftovers of a dead worker not removed", "folder", c.dir, "error", err)
		return
	}
	s.log.Info("leftovers of a dead worker removed", "folder", c.dir)
}

// condemn renames a scratch folder for its removal. If the removal is interrupted,
// the name tells the next worker to resume it.
func condemn(dir string, lock *os.File) (condemned, error) {
	parent, name := filepath.Split(dir)
	c := condemned{dir: filepath.Join(parent, removedPrefix+strings.TrimPrefix(name, scratchPrefix)), lock: lock}
	return c, sandbox.WhileHeld(sandbox.HeldShort, func() error { return os.Rename(dir, c.dir) })
}

// condemnLeftovers returns the folders to remove: folders of dead workers, and folders
// whose removal was interrupted. It skips folders of other users and folders that a
// worker is just making.
func (s *Root) condemnLeftovers() []condemned {
	entries, err := os.ReadDir(s.parent)
	if err != nil {
		s.log.Warn("scratch folder not searched for leftovers of dead workers", "folder", s.parent, "error", err)
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

// condemnIfDead condemns a scratch folder whose locks are free. It returns errLocked
// if a worker holds one or may be about to.
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
	file, err := lockExisting(lockOf(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// A worker is making it, or died while it made it.
		if info, err := os.Lstat(dir); err != nil || now.Sub(info.ModTime()) < creationGrace {
			return condemned{}, errors.Join(errLocked, err)
		}
	case err != nil:
		return condemned{}, err
	default:
		_ = file.Close() // where open files cannot be moved, it would prevent the rename
	}
	return condemn(dir, folder)
}
