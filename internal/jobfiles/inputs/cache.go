package inputs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/host/resource"
	"github.com/spotworker/spotworker/internal/host/sandbox"
)

// Modes. Folders are closed to other users; an entry can be read by the user of a
// program that it was linked for, and written by none.
const (
	folderMode = 0o700
	fileMode   = 0o444
)

// usedEvery is how precisely the time of the last use of an entry is known.
const usedEvery = time.Minute

// cache is the folder that all workers of a user on one machine share, and the place of
// this worker in it.
type cache struct {
	root  string
	limit int64 // bytes that entries and reservations take at most
	space func(dir string) (free, size int64)

	sums *sums // nil where no program can change entries

	own  string   // this worker's folder
	lock *os.File // on it
}

// openCache opens the cache and makes the worker's folder. It removes what dead workers
// left, and all entries if they were made before the machine was booted.
func openCache(root string, limit int64, boot string) (*cache, error) {
	c := &cache{root: root, limit: limit, space: resource.Space}
	for _, dir := range []string{root, c.path("blobs"), c.path("workers")} {
		if err := os.MkdirAll(dir, folderMode); err != nil {
			return nil, err
		}
	}
	if err := checkOwner(root); err != nil {
		return nil, err
	}
	if c.limit == 0 {
		_, size := c.space(root)
		c.limit = max(size/2, minLimit)
	}
	err := c.locked(func(*os.File) error {
		if err := c.emptyAfterBoot(boot); err != nil {
			return err
		}
		c.removeDead()
		return c.makeOwn()
	})
	return c, err
}

func (c *cache) path(parts ...string) string {
	return filepath.Join(append([]string{c.root}, parts...)...)
}

const (
	// lockTimeout is how long to wait for the lock. A holder releases it within
	// milliseconds, unless it is frozen or evicts very many entries.
	lockTimeout = 20 * time.Second

	lockRetry = 2 * time.Millisecond
)

// locked calls f while no other worker does.
func (c *cache) locked(f func(lock *os.File) error) error {
	file, err := os.OpenFile(c.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // which releases the lock
	for late := time.Now().Add(lockTimeout); ; time.Sleep(lockRetry) {
		if err = lockFile(file); err == nil {
			return f(file)
		}
		if time.Now().After(late) {
			return fmt.Errorf("another worker holds the lock of the cache of inputs %s: %w", c.root, err)
		}
	}
}

// emptyAfterBoot removes all entries if the machine was booted since they were made.
func (c *cache) emptyAfterBoot(boot string) error {
	last, err := os.ReadFile(c.path("boot"))
	if err == nil && string(last) == boot || boot == "" {
		return nil
	}
	if err := sandbox.RemoveContent(c.path("blobs")); err != nil {
		return err
	}
	return os.WriteFile(c.path("boot"), []byte(boot), 0o600)
}

const lockSuffix = ".lock"

// removeDead removes the folders of workers whose locks are free.
func (c *cache) removeDead() {
	entries, _ := os.ReadDir(c.path("workers"))
	for _, entry := range entries {
		id, isLock := strings.CutSuffix(entry.Name(), lockSuffix)
		if !isLock {
			continue
		}
		file, err := os.OpenFile(c.path("workers", entry.Name()), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		dead := lockFile(file) == nil
		_ = file.Close()
		if dead && sandbox.RemoveTree(c.path("workers", id)) == nil {
			_ = os.Remove(c.path("workers", entry.Name()))
		}
	}
}

// makeOwn makes this worker's folder and takes its lock. After an error nothing is left: each
// job with inputs tries again.
func (c *cache) makeOwn() error {
	file, err := os.CreateTemp(c.path("workers"), "*"+lockSuffix)
	if err != nil {
		return err
	}
	c.own, c.lock = strings.TrimSuffix(file.Name(), lockSuffix), file
	if err = errors.Join(lockFile(file), os.Mkdir(c.own, folderMode)); err == nil {
		err = c.checkLinks()
	}
	if err != nil {
		return errors.Join(err, c.removeOwn())
	}
	return nil
}

// removeOwn removes this worker's folder and its lock.
func (c *cache) removeOwn() error {
	err := sandbox.RemoveTree(c.own)
	return errors.Join(err, c.lock.Close(), removeFile(c.own+lockSuffix))
}

// isThere reports whether this worker's folder still exists.
func (c *cache) isThere() bool {
	_, err := os.Lstat(c.own)
	return !errors.Is(err, fs.ErrNotExist)
}

// checkLinks returns an error if the file system has no hard links, which count the users
// of an entry.
func (c *cache) checkLinks() error {
	from, to := filepath.Join(c.own, "link"), c.path("blobs", "link")
	err := os.WriteFile(from, nil, 0o600)
	if err == nil {
		err = os.Link(from, to)
	}
	if err = errors.Join(err, removeFile(to), removeFile(from)); err != nil {
		return fmt.Errorf("the file system of the cache of inputs must have hard links: %w", err)
	}
	return nil
}

// close removes the worker's folder. Entries stay for the next worker.
func (c *cache) close() error {
	defer func() { _ = c.lock.Close() }() // so that the next worker removes what is left
	if !c.isThere() {
		return nil // removed from outside
	}
	return c.locked(func(*os.File) error { return c.removeOwn() })
}

func removeFile(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (c *cache) entry(key string) string { return c.path("blobs", key[:2], key) }

// size returns the length of an entry, if it is there.
func (c *cache) size(key string) (int64, bool) {
	info, err := os.Lstat(c.entry(key))
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	return info.Size(), true
}

// hold links an entry of that length to a name in the worker's folder. It reports whether
// the entry is there.
func (c *cache) hold(key string, size int64, name string) (bool, error) {
	entry := c.entry(key)
	err := whileHeld(func() error { return os.Link(entry, name) })
	if errors.Is(err, fs.ErrNotExist) {
		if _, gone := os.Lstat(filepath.Dir(name)); gone == nil {
			return false, nil
		}
	}
	if err != nil {
		return false, err
	}
	info, err := os.Lstat(name) // it can no longer be evicted
	if err != nil {
		return false, err
	}
	if info.Size() != size || !info.Mode().IsRegular() {
		return false, errors.Join(removeFile(entry), removeFile(name)) // damaged from outside
	}
	if now := time.Now(); now.Sub(info.ModTime()) > usedEvery {
		_ = os.Chtimes(name, now, now)
	}
	return true, nil
}

// whileHeld waits for a virus scanner that has a file open.
func whileHeld(f func() error) error { return sandbox.WhileHeld(sandbox.HeldShort, f) }

// add makes a downloaded and verified file an entry, and keeps it under its name. An
// entry that another worker added in the meantime has the same content.
func (c *cache) add(key, name string) error {
	if err := whileHeld(func() error { return os.Chmod(name, fileMode) }); err != nil {
		return err
	}
	entry := c.entry(key)
	err := whileHeld(func() error { return os.Link(name, entry) })
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(entry), folderMode); err == nil {
			err = os.Link(name, entry)
		}
	}
	if errors.Is(err, fs.ErrExist) && c.sums != nil { // it was not used: its content is not known
		err = errors.Join(removeFile(entry), os.Link(name, entry))
	}
	if errors.Is(err, fs.ErrExist) {
		return nil // not counted twice: see settle
	}
	return err
}
