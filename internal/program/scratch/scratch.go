package scratch

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

	"github.com/spotworker/spotworker/internal/host/resource"
	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/program/tree"
)

// Root is the folder in which a worker makes the folders of its jobs. Each worker has
// its own.
type Root struct {
	parent string
	users  *sandbox.Users // nil where programs run as the worker's user
	log    *slog.Logger

	removals sync.WaitGroup // under way

	mu         sync.Mutex
	home       *home
	notRemoved []string        // folders of jobs that could not be removed yet
	notEnded   []*sandbox.User // users of jobs that could not be ended yet; no job may have them
}

// home is a scratch folder and its locks, which are held while its worker is alive.
type home struct {
	dir    string
	info   fs.FileInfo // of the folder, when it was made
	folder *os.File    // the lock on the folder; nil where the system has none
	file   *os.File    // the lock on the file in it
}

// Open makes a worker's scratch folder below parent, which is
// [os.TempDir] when empty. It removes the folders of workers that have died: the
// system releases their locks when a process ends.
//
// With users, each job's program runs as one of them. They must be able to enter
// the folder, but not to list it.
func Open(parent string, users *sandbox.Users, log *slog.Logger) (*Root, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return nil, err
	}
	if err := tree.CheckPath(filepath.Join(parent, scratchPrefix+"0123456789", "job-0123456789", "work")); err != nil {
		return nil, fmt.Errorf("choose a folder with a shorter path: %w", err)
	}
	s := &Root{parent: parent, users: users, log: log}
	dead, err := s.begin()
	if resource.IsExhaustion(err) { // the leftovers may be why
		for _, c := range dead {
			c.remove(s)
		}
		dead, err = s.begin()
	}
	if err != nil {
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

// begin makes the worker's folder, and returns the leftovers that are to be removed.
func (s *Root) begin() (dead []condemned, err error) {
	err = s.locked(func() (err error) {
		dead = s.condemnLeftovers()
		s.home, err = s.newHome()
		return err
	})
	return dead, err
}

// Parent returns the folder that Open got, or its default.
func (s *Root) Parent() string { return s.parent }

// leftoversGrace is how long a start waits for the removal of leftovers, which may
// have millions of files: a service manager gives a start a minute.
const leftoversGrace = 5 * time.Second

// await runs a removal, and reports whether it ended within the grace. A longer removal
// continues in the background.
func (s *Root) await(grace time.Duration, removal func()) bool {
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

// homeModeWithUsers is the mode of a scratch folder whose jobs have users of their
// own: they may enter it, and the worker's group, which they are not in, makes
// folders.
const homeModeWithUsers = 0o731

// locked makes the parent if necessary and calls f under its lock, so that no other
// worker makes or removes scratch folders at the same time. It also calls f if the
// lock is unavailable, as when its file is another user's: whether a folder is
// removed depends on the folder's own locks, which are held before they are visible
// (see lockNew).
func (s *Root) locked(f func() error) error {
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
func (s *Root) newHome() (*home, error) {
	dir, err := os.MkdirTemp(s.parent, scratchPrefix+"*") // mode 0700
	if err != nil {
		return nil, err
	}
	h := &home{dir: dir}
	if h.info, err = os.Lstat(dir); err == nil {
		err = h.takeLocks()
	}
	if err == nil && s.users != nil {
		err = errors.Join(os.Chmod(dir, homeModeWithUsers), s.users.CanEnter(dir))
	}
	if err != nil {
		h.release()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return h, nil
}

// takeLocks locks the folder, which also keeps systemd-tmpfiles away from it, and
// the file in it, which serves where the file system locks no folders.
func (h *home) takeLocks() (err error) {
	h.folder, err = waitForLock(func() (*os.File, error) { return lockFolder(h.dir) })
	if err != nil {
		return err
	}
	h.file, err = lockNew(lockOf(h.dir))
	return err
}

// release releases the locks.
func (h *home) release() {
	for _, lock := range []*os.File{h.folder, h.file} {
		if lock != nil {
			_ = lock.Close()
		}
	}
}

// isThere reports whether the folder still exists and is the same folder.
func (h *home) isThere() bool {
	info, err := os.Lstat(h.dir)
	return err == nil && os.SameFile(info, h.info)
}

// folder returns the scratch folder. It makes a new one if the old one was removed
// from outside, for example by a cleaner of /tmp.
func (s *Root) folder() (string, error) {
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

// Contains reports whether a job's folder is in the scratch folder, and that still
// exists.
func (s *Root) Contains(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return filepath.Dir(dir) == s.home.dir && s.home.isThere()
}

// closeGrace is how long Close waits for the removal of jobs' folders. The next worker
// removes the rest.
const closeGrace = 5 * time.Second

// Close removes the folder and all that is in it.
func (s *Root) Close() error {
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
func (s *Root) removeHome(dir string) error {
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

// Discard is Remove for the end of a job. A removal that takes long continues in
// the background.
func (s *Root) Discard(f *Folder, log *slog.Logger) {
	if !s.await(discardGrace, func() {
		if err := s.Remove(f); err != nil {
			log.Warn("job's folder not removed yet", "error", err)
		}
	}) {
		log.Info("job's folder has many files; it is removed in the background")
	}
}

// endLeft ends the users of earlier jobs that could not be ended, and gives their ids back: a
// worker out of descriptors or processes cannot end a user, and would run out of ids.
func (s *Root) endLeft() {
	s.mu.Lock()
	left := s.notEnded
	s.notEnded = nil
	s.mu.Unlock()
	left = slices.DeleteFunc(left, func(user *sandbox.User) bool {
		if s.users.End(user) != nil {
			return false
		}
		s.users.Put(user)
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notEnded = append(s.notEnded, left...)
}

// Remove removes the rest of a finished job: its processes, its folder, and its user's
// files elsewhere. It first retries the users and folders of earlier jobs that could not be
// removed: a worker out of file descriptors cannot list a folder to empty it, and
// the remains would fill the disk.
func (s *Root) Remove(f *Folder) error {
	s.endLeft()
	s.mu.Lock()
	old := s.notRemoved
	s.notRemoved = nil
	s.mu.Unlock()
	old = slices.DeleteFunc(old, func(dir string) bool { return removeTree(s.users.OwnerOf(dir), dir) == nil })
	err := s.users.End(f.User)
	ended := err == nil
	if ended {
		defer s.users.Put(f.User)
	}
	if failed := removeTree(f.User, f.Dir); failed != nil {
		old, err = append(old, f.Dir), errors.Join(err, failed)
	}
	if f.inputs != "" {
		if failed := removeTree(nil, f.inputs); failed != nil {
			old, err = append(old, f.inputs), errors.Join(err, failed)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notRemoved = append(s.notRemoved, old...)
	if !ended {
		s.notEnded = append(s.notEnded, f.User)
	}
	return err
}

// removeTree removes a job's folder. Its content belongs to the job's user, its entry
// to the worker.
func removeTree(user *sandbox.User, dir string) error {
	err := user.RemoveContent(dir)
	if err == nil {
		err = sandbox.WhileHeld(sandbox.HeldShort, func() error { return os.Remove(dir) })
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the job's folder: %w", err)
	}
	return nil
}

// errLocked says that another worker holds a lock.
var errLocked = errors.New("locked by another worker")

const (
	// lockTimeout is how long to wait for a lock. A holder releases it within
	// milliseconds unless it is frozen.
	lockTimeout = 5 * time.Second

	lockRetry = 2 * time.Millisecond
)

// waitForLock retries take until the lock is free, for at most lockTimeout.
func waitForLock(take func() (*os.File, error)) (*os.File, error) {
	for late := time.Now().Add(lockTimeout); ; time.Sleep(lockRetry) {
		file, err := take()
		if !errors.Is(err, errLocked) || time.Now().After(late) {
			return file, err
		}
	}
}
