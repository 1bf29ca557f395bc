package inputs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// minLimit is the smallest bound of a cache, in bytes.
const minLimit = 64 << 20

// spareSpace is how much of the file system stays free, in bytes.
const spareSpace = 64 << 20

// reservePrefix begins the names of reservations: empty files whose length is the space
// that downloads of a job will take.
const reservePrefix = "reserve-"

// errNoSpace means that there is no room for the inputs of a job now.
var errNoSpace = errors.New("no room for the job's inputs on this machine now")

// IsNoSpace reports whether there was no room for the inputs of a job: others use the
// disk or the cache.
func IsNoSpace(err error) bool { return errors.Is(err, errNoSpace) }

// tooLargeError says that inputs never fit on this machine.
type tooLargeError struct{ text string }

func (e *tooLargeError) Error() string { return e.text }

// reservation is space for the downloads of a job.
type reservation struct {
	cache *cache
	file  *os.File
	left  atomic.Int64
}

// evicted counts the entries that were removed to make room.
type evicted struct{ files, bytes int64 }

// reserve reserves space for downloads of a job that has all bytes in its inputs, and
// evicts entries for it. Of the bytes that it needs have are on the disk already. The error is a
// [*tooLargeError] if they do not fit on this
// machine at all, and wraps errNoSpace if they do not fit now.
func (c *cache) reserve(need, have, all int64) (r *reservation, out evicted, err error) {
	if all > c.limit {
		return nil, out, &tooLargeError{fmt.Sprintf("the job's inputs have %d bytes, and the cache of inputs on this machine may have %d "+
			"(--input-cache)", all, c.limit)}
	}
	if _, size := c.space(c.root); size > 0 && all+spareSpace > size {
		return nil, out, &tooLargeError{fmt.Sprintf("the job's inputs have %d bytes, and the file system of %s has %d", all, c.root, size)}
	}
	err = c.locked(func(lock *os.File) error {
		used, err := readUsed(lock)
		if err != nil || used+need > c.limit || c.missing(need-have) > 0 {
			c.removeParts()
			if used, out, err = c.evict(need, have); err != nil {
				return err
			}
		}
		if used+need > c.limit {
			return fmt.Errorf("%w: they need %d bytes, and of the %d bytes of the cache running jobs use %d", errNoSpace, need, c.limit, used)
		}
		if less := c.missing(need - have); less > 0 {
			return fmt.Errorf("%w: they need %d bytes, %d more than are free in %s", errNoSpace, need, less, c.root)
		}
		file, err := os.CreateTemp(c.own, reservePrefix+"*")
		if err != nil {
			return err
		}
		r = &reservation{cache: c, file: file}
		r.left.Store(need)
		if err := errors.Join(file.Truncate(need), writeUsed(lock, used+need)); err != nil {
			return errors.Join(err, r.remove())
		}
		return nil
	})
	return r, out, err
}

// missing returns how many bytes more than are free a download of that length needs.
func (c *cache) missing(need int64) int64 {
	free, size := c.space(c.root)
	if size == 0 {
		return 0 // not known
	}
	return max(need+spareSpace-free, 0)
}

// spend records that a part of the reservation is an entry now.
func (r *reservation) spend(bytes int64) {
	if r != nil {
		_ = r.file.Truncate(max(r.left.Add(-bytes), 0))
	}
}

// remove removes the file of the reservation.
func (r *reservation) remove() error { return errors.Join(r.file.Close(), removeFile(r.file.Name())) }

// settle ends the reservation, and frees what of it was not spent. Without the lock, as where
// descriptors have run out, that counts as used until the next eviction.
func (r *reservation) settle() error {
	settled := false
	err := r.cache.locked(func(lock *os.File) error {
		settled = true
		err := r.remove()
		used, readErr := readUsed(lock)
		if readErr != nil {
			return errors.Join(err, readErr)
		}
		return errors.Join(err, writeUsed(lock, max(used-max(r.left.Load(), 0), 0)))
	})
	if !settled {
		err = errors.Join(err, r.remove())
	}
	return err
}

// readUsed returns how many bytes entries and reservations take, as the last worker that
// held the lock left it. A crash may leave too much; then the next eviction counts again.
func readUsed(lock *os.File) (int64, error) {
	text, err := io.ReadAll(io.NewSectionReader(lock, 0, 32))
	if err != nil || len(text) == 0 {
		return 0, err
	}
	used, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || used < 0 {
		return 0, fmt.Errorf("the number of used bytes is damaged: %.40q", text)
	}
	return used, nil
}

func writeUsed(lock *os.File, used int64) error {
	_, err := lock.WriteAt(fmt.Appendf(nil, "%31d\n", used), 0)
	return err
}

// unused is an entry that no job uses.
type unused struct {
	name string
	size int64
	last time.Time
}

// evict counts what entries and reservations take, and removes unused entries, those used
// longest ago first, until need more bytes fit or none is left.
func (c *cache) evict(need, have int64) (used int64, out evicted, err error) {
	var free []unused
	err = filepath.WalkDir(c.path("blobs"), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return ignoreGone(err)
		}
		info, err := entry.Info()
		if err != nil {
			return ignoreGone(err)
		}
		used += info.Size()
		if n, err := links(name, info); err == nil && n == 1 {
			free = append(free, unused{name, info.Size(), info.ModTime()})
		}
		return nil
	})
	if err != nil {
		return 0, out, fmt.Errorf("count the cache of inputs: %w", err)
	}
	reserved, err := filepath.Glob(filepath.Join(c.path("workers"), "*", reservePrefix+"*"))
	if err != nil {
		return 0, out, err
	}
	kept, err := filepath.Glob(filepath.Join(c.path("workers"), "*", keptPrefix+"*"))
	if err != nil {
		return 0, out, err
	}
	for _, name := range slices.Concat(reserved, kept) {
		if info, err := os.Lstat(name); err == nil {
			used += info.Size()
		}
	}
	slices.SortFunc(free, func(a, b unused) int { return a.last.Compare(b.last) })
	for _, entry := range free {
		if used+need <= c.limit && c.missing(need-have) == 0 {
			break
		}
		if os.Remove(entry.name) == nil {
			used -= entry.size
			out.files++
			out.bytes += entry.size
		}
	}
	return used, out, nil
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
