package process

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/sandbox"
)

// Scratch is a worker's folder for the folders of its jobs. Two workers never
// share one.
type Scratch struct {
	parent string
	users  *sandbox.Users // nil where programs run as the worker's user
	log    *slog.Logger

	removals sync.WaitGroup // under way

	mu   sync.Mutex
	home *home
	left []string // folders of jobs that could not be removed yet
}

// home is a scratch folder and the locks that say that its worker lives.
type home struct {
	dir    string
	is     fs.FileInfo // of the folder, when it was made
	folder *os.File    // the folder's own lock; nil where the system has none
	file   *os.File    // the lock of the file in it
}

// OpenScratch makes a worker's scratch folder below parent, which is
// [os.TempDir] when empty. It removes the folders of workers that have died: the
// system releases their locks when a process ends.
//
// With users, each job's program runs as one of them. They must be able to enter
// the folder, but not to list it.
func OpenScratch(parent string, users *sandbox.Users, log *slog.Logger) (*Scratch, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return nil, err
	}
	s := &Scratch{parent: parent, users: users, log: log}
	var dead []condemned
	if err := s.locked(func() (err error) {
		dead = s.condemnLeftovers()
		s.home, err = s.newHome()
		return err
	}); err != nil {
		for _, c := range dead {
			c.release()
		}
		return nil, err
	}
	if !s.await(leftoversGrace, func() { // outside the lock of the parent: it may take minutes
		for _, c := range dead {
			c.remove(s)
		}
	}) {
		log.Info("leftovers of dead workers have many files; they are removed in the background")
	}
	return s, nil
}

// leftoversGrace is how long a start waits for the removal of leftovers, which may
// have millions of files: a service manager gives a start a minute.
const leftoversGrace = 5 * time.Second

// await runs a removal, and reports whether it ended within the grace. One that
// takes longer continues in the background.
func (s *Scratch) await(grace time.Duration, removal func()) bool {
	ended := make(chan struct{})
	s.removals.Go(func() {
		defer close(ended)
		removal()
	})
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

// homeOfUsers is the mode of a scratch folder whose jobs have users of their own:
// the worker's group, which they are not in, makes folders, and they may enter.
const homeOfUsers = 0o731

// locked calls f while no other worker makes or judges folders in the parent,
// which is made if need be. A lock that cannot be had, as when the file is
// another user's, stops nobody: a folder shows its lock only once that is held
// (see lockNew), and the locks of the folder alone decide whether it is removed.
func (s *Scratch) locked(f func() error) error {
	mode := os.FileMode(0o700)
	if s.users != nil {
		mode = 0o711 // programs pass through
	}
	if err := os.MkdirAll(s.parent, mode); err != nil {
		return err
	}
	lock, err := waitForLock(func() (*os.File, error) { return lockShared(s.parent) })
	if err != nil {
		s.log.Warn("lock of the scratch folders not taken; this worker continues without it", "folder", s.parent, "error", err)
		return f()
	}
	defer func() { _ = lock.Close() }()
	return f()
}

// newHome makes a scratch folder and takes its locks.
func (s *Scratch) newHome() (*home, error) {
	dir, err := os.MkdirTemp(s.parent, scratchPrefix+"*") // mode 0700
	if err != nil {
		return nil, err
	}
	h := &home{dir: dir}
	if h.is, err = os.Lstat(dir); err == nil {
		err = h.takeLocks()
	}
	if err == nil && s.users != nil {
		err = errors.Join(os.Chmod(dir, homeOfUsers), s.users.CanEnter(dir))
	}
	if err != nil {
		h.release()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return h, nil
}

// takeLocks takes the lock of the folder, which also keeps systemd-tmpfiles away
// from it, and that of the file in it, which is what earlier versions look at.
func (h *home) takeLocks() (err error) {
	h.folder, err = waitForLock(func() (*os.File, error) { return lockFolder(h.dir) })
	if err != nil {
		return err
	}
	h.file, err = lockNew(lockOf(h.dir))
	return err
}

// release gives the locks up.
func (h *home) release() {
	for _, lock := range []*os.File{h.folder, h.file} {
		if lock != nil {
			_ = lock.Close()
		}
	}
}

// isThere reports whether the folder is still the one that was made. One of the
// same name that somebody else made is not.
func (h *home) isThere() bool {
	info, err := os.Lstat(h.dir)
	return err == nil && os.SameFile(info, h.is)
}

// place returns the scratch folder. It makes another when somebody, such as a
// cleaner of /tmp, has removed it.
func (s *Scratch) place() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.home.isThere() {
		return s.home.dir, nil
	}
	gone := s.home
	err := s.locked(func() error {
		made, err := s.newHome()
		if err == nil {
			s.home = made
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("make the scratch folder again, which was removed from outside: %w", err)
	}
	gone.release()
	s.log.Warn("scratch folder was removed from outside and is made again; keep cleaners of temporary files away from it, or set --scratch",
		"removed", gone.dir, "folder", s.home.dir)
	return s.home.dir, nil
}

// holds reports whether a job's folder is still where it was made.
func (s *Scratch) holds(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return filepath.Dir(dir) == s.home.dir && s.home.isThere()
}

// closeGrace is how long Close waits for the removal of jobs' folders. The next
// worker removes what is left then.
const closeGrace = 5 * time.Second

// Close removes the folder and all that is in it.
func (s *Scratch) Close() error {
	removed := make(chan struct{})
	go func() { s.removals.Wait(); close(removed) }()
	select {
	case <-removed:
	case <-time.After(closeGrace):
		return errors.New("folders of jobs are still being removed")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var own condemned
	err := s.locked(func() (err error) {
		_ = s.home.file.Close() // where open files cannot be moved, it would prevent the rename
		own, err = condemn(s.home.dir, s.home.folder)
		return err
	})
	defer own.release()
	if errors.Is(err, fs.ErrNotExist) { // removed from outside
		return nil
	}
	if err != nil {
		return errors.Join(err, s.removeHome(s.home.dir))
	}
	return s.removeHome(own.dir)
}

// removeHome removes a scratch folder with the folders of its jobs.
func (s *Scratch) removeHome(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if name := filepath.Join(dir, entry.Name()); entry.IsDir() {
			if err := removeTree(s.users.OwnerOf(name), name); err != nil {
				return err
			}
		}
	}
	return sandbox.RemoveTree(dir)
}

// discardGrace is how long a job's slot waits for the removal of its folder, which
// may have millions of files.
const discardGrace = time.Second

// discard is remove for the end of a job. A removal that takes long continues in
// the background.
func (s *Scratch) discard(f *folder, log *slog.Logger) {
	if !s.await(discardGrace, func() {
		if err := s.remove(f); err != nil {
			log.Warn("job's folder not removed yet", "error", err)
		}
	}) {
		log.Info("job's folder has many files; it is removed in the background")
	}
}

// remove ends what is left of a job that is over: its processes, its folder, and
// what its user has elsewhere. Before that it removes folders that could not be
// removed when their jobs ended: a worker that is short of file descriptors cannot
// look into a folder to empty it, and what it left would fill the disk.
func (s *Scratch) remove(f *folder) error {
	s.mu.Lock()
	old := s.left
	s.left = nil
	s.mu.Unlock()
	old = slices.DeleteFunc(old, func(dir string) bool { return removeTree(s.users.OwnerOf(dir), dir) == nil })
	err := s.users.End(f.user)
	if err == nil {
		defer s.users.Put(f.user)
	}
	if failed := removeTree(f.user, f.dir); failed != nil {
		old, err = append(old, f.dir), errors.Join(err, failed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = append(s.left, old...)
	return err
}

// removeTree removes the folder of a job, whose content is its user's and whose
// entry is the worker's.
func removeTree(user *sandbox.User, dir string) error {
	err := user.RemoveContent(dir)
	if err == nil {
		err = os.Remove(dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the job's folder: %w", err)
	}
	return nil
}

// errLocked says that another worker holds a lock.
var errLocked = errors.New("locked by another worker")

const (
	// lockPatience is how long a lock is waited for that is held for a moment
	// only, unless its holder is frozen.
	lockPatience = 5 * time.Second

	lockRetry = 2 * time.Millisecond
)

// waitForLock takes a lock as soon as it is free, within lockPatience.
func waitForLock(take func() (*os.File, error)) (*os.File, error) {
	for late := time.Now().Add(lockPatience); ; time.Sleep(lockRetry) {
		file, err := take()
		if !errors.Is(err, errLocked) || time.Now().After(late) {
			return file, err
		}
	}
}
