package ownfiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spotworker/spotworker/internal/host/filetype"
	"github.com/spotworker/spotworker/internal/program/archive"
)

const (
	// still is for how long the files of a checkpoint must not have changed. The looks are
	// counted too: after a freeze of the VM time has passed in which no program wrote.
	still      = time.Second
	stillLooks = 4

	// restFactor is how many times as long as a look or a copy the next one waits. Copies
	// thereby take at most a twentieth of the time.
	restFactor = 20
)

// Taker takes copies of the files of one running program. Its methods are called by one
// goroutine.
type Taker struct {
	dir                string
	patterns, reserved []string
	most               int64 // bytes of a checkpoint

	marks found     // of the first pattern, at the last look
	since time.Time // of the look that found them so
	looks int       // since then, with that one

	taken              found // of the first pattern: in the last checkpoint, or at the start
	before             found // of the first pattern: in the checkpoint before that
	copied             found // all files of the last copy that were old enough to be told from later versions
	nextLook, nextCopy time.Time
	restless           time.Time // since when a new checkpoint is not still; zero for none
}

// New returns a taker for the files that patterns match in a program's working folder, apart
// from reserved names. A checkpoint has at most so many bytes. The files that are there now
// make no checkpoint, until they change.
func New(dir string, patterns, reserved []string, most int64) (*Taker, error) {
	t := &Taker{dir: dir, patterns: patterns, reserved: reserved, most: most}
	root, err := filetype.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	t.taken, err = find(root, patterns[:1], reserved)
	return t, err
}

// Look reports whether there is a new checkpoint to be copied.
func (t *Taker) Look(now time.Time) (bool, error) {
	if now.Before(t.nextLook) {
		return false, nil
	}
	root, err := filetype.OpenRoot(t.dir)
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	began := time.Now()
	marks, err := find(root, t.patterns[:1], t.reserved)
	t.nextLook = now.Add(restFactor * time.Since(began))
	if err != nil {
		return false, err
	}
	if t.looks == 0 || !marks.equal(t.marks) {
		t.since, t.looks = now, 0
	}
	t.marks = marks
	t.looks++
	if !t.isNew(marks) || t.isStill(now) {
		t.restless = time.Time{}
	} else if t.restless.IsZero() {
		t.restless = now
	}
	return t.isNew(marks) && t.isStill(now) && !now.Before(t.nextCopy), nil
}

// NeverStill reports whether the files of the first pattern have changed for so long that no
// checkpoint could be copied.
func (t *Taker) NeverStill(now time.Time) bool {
	return !t.restless.IsZero() && now.Sub(t.restless) > restlessFor
}

const restlessFor = time.Minute

func (t *Taker) isNew(marks found) bool { return len(marks) > 0 && !marks.equal(t.taken) }

func (t *Taker) isStill(now time.Time) bool {
	return t.looks >= stillLooks && now.Sub(t.since) >= still
}

// Copy copies all files to a new folder. before is the folder of the copy before, if that
// still exists, or empty. It returns false if there is no checkpoint: the files have changed
// meanwhile, or ctx was cancelled.
func (t *Taker) Copy(ctx context.Context, to, before string) (bool, error) {
	began := time.Now()
	ok, err := t.make(ctx, to, func(c *copying, name string, info fs.FileInfo) error {
		if before != "" && same(info, t.copied[name]) && c.link(before, name) == nil {
			return nil
		}
		return c.copy(ctx, name, info)
	})
	t.nextCopy = time.Now().Add(restFactor * time.Since(began))
	return ok, err
}

// Discard takes back the last copy, which its owner does not use.
func (t *Taker) Discard() { t.taken, t.copied = t.before, nil }

// Last makes a folder with links to all files of a program that has ended. It returns false
// if there is no new checkpoint. unsure is whether the program may have been writing when it
// ended.
func (t *Taker) Last(now time.Time, to string, unsure bool) (bool, error) {
	root, err := filetype.OpenRoot(t.dir)
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	marks, err := find(root, t.patterns[:1], t.reserved)
	if err != nil || !t.isNew(marks) || unsure && !(marks.equal(t.marks) && t.isStill(now)) {
		return false, err
	}
	return t.make(context.Background(), to, func(c *copying, name string, info fs.FileInfo) error {
		if c.link(t.dir, name) == nil {
			return nil
		}
		return c.copy(context.Background(), name, info)
	})
}

// make makes a checkpoint, whose files add brings into it.
func (t *Taker) make(ctx context.Context, to string, add func(c *copying, name string, info fs.FileInfo) error) (ok bool, err error) {
	root, err := filetype.OpenRoot(t.dir)
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	marks, err := find(root, t.patterns[:1], t.reserved)
	if err != nil || len(marks) == 0 {
		return false, err
	}
	all, err := find(root, t.patterns, t.reserved)
	if err != nil {
		return false, err
	}
	if size := all.size(); size > t.most {
		return false, fmt.Errorf("%w: its files have %d bytes, of %d allowed", archive.ErrTooLarge, size, t.most)
	}
	c, err := newCopying(root, to)
	if err != nil {
		return false, err
	}
	defer c.close()
	began := time.Now()
	copied := found{}
	for name, info := range all {
		if err := add(c, name, info); err != nil {
			if errors.Is(err, errChanged) || ctx.Err() != nil {
				return false, nil // another look finds it again
			}
			return false, err
		}
		if began.Sub(info.ModTime()) > settled {
			copied[name] = info
		}
	}
	after, err := find(root, t.patterns[:1], t.reserved)
	if err != nil || !after.equal(marks) {
		return false, err
	}
	t.before, t.taken, t.copied = t.taken, marks, copied
	return true, nil
}

// settled is the age from which on the time of a file tells whether it was written to since:
// some file systems keep times in steps of two seconds.
const settled = 3 * time.Second
