package ownfiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/host/filetype"
	"github.com/spotworker/spotworker/internal/program/archive"
)

const (
	// still is for how long the files of a checkpoint must not have changed. The looks are
	// counted too: after a freeze of the VM time has passed in which no program wrote.
	still      = time.Second
	stillLooks = 4

	// firstStill is that time while it is not known which files change together, and patience
	// while one of them has not changed yet.
	firstStill = 5 * time.Second
	patience   = 30 * time.Second

	// restFactor is how many times as long as a look or a copy the next one waits. Copies
	// thereby take at most a twentieth of the time.
	restFactor = 20
)

// Taker takes copies of the files of one running program. Its methods are called by one
// goroutine.
type Taker struct {
	// Held is whether the last copy, for which Copy returned false, is to be kept: other files
	// may belong to it. Released is whether the last look has shown that none do.
	Held, Released bool

	dir      string
	patterns []string
	most     int64 // bytes of a checkpoint

	marks found     // of the first pattern, at the last look
	since time.Time // of the look that found them so
	looks int       // since then, with that one
	rounds

	taken              found // of the first pattern: in the last checkpoint, or at the start
	before             found // of the first pattern: in the checkpoint before that
	copied             found // all files of the last copy that were old enough to be told from later versions
	nextLook, nextCopy time.Time
	restless           time.Time // since when a new checkpoint is not still; zero for none
	rewrites           int       // looks since then that found another version, and not a longer one
	early              bool      // files may change with those of the last look that have not yet
	atOnce             bool      // the last look found a checkpoint that is complete without being still
}

// New returns a taker for the files that patterns match in a program's working folder, apart
// from reserved names. A checkpoint has at most so many bytes. The files that are there now
// make no checkpoint, until they change.
func New(dir string, patterns []string, most int64) (*Taker, error) {
	t := &Taker{dir: dir, patterns: patterns, most: most}
	root, marks, err := t.open()
	if err != nil {
		return nil, err
	}
	t.taken, t.rounds = marks, begin(marks)
	return t, root.Close()
}

// Look reports whether there is a new checkpoint to be copied.
func (t *Taker) Look(now time.Time) (bool, error) {
	if now.Before(t.nextLook) {
		return false, nil
	}
	began := time.Now()
	root, marks, err := t.open()
	t.nextLook = now.Add(restFactor * time.Since(began))
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	wasTaken := t.marks.equal(t.taken)
	again := t.observe(marks, now, func(name string) bool { return isWritten(root, name) })
	return t.judge(marks, now, again && wasTaken) && !now.Before(t.nextCopy), nil
}

// judge reports whether what a look has found is a new checkpoint. another is whether a round began
// after the last copy.
func (t *Taker) judge(marks found, now time.Time, another bool) bool {
	ready, isStill := t.isReady(now), t.looks >= stillLooks && now.Sub(t.since) >= still
	t.early = isStill && !ready && t.rounds.state() == unknown
	if t.Released = t.Held && (another || ready && !t.isNew(marks)); t.Released {
		t.Held = false
	} else if t.Held && t.isNew(marks) {
		t.Discard()
	}
	isNew := t.isNew(marks)
	t.observeRest(now, !isNew || ready || isStill)
	return isNew && (ready || t.early) && !t.Released
}

// observeRest takes in whether the files of a look are still, or complete.
func (t *Taker) observeRest(now time.Time, atRest bool) {
	if atRest {
		t.restless, t.rewrites = time.Time{}, 0
	} else if t.restless.IsZero() {
		t.restless = now
	}
}

// open opens the program's folder, and finds the files of the first pattern in it.
func (t *Taker) open() (*os.Root, found, error) {
	root, err := filetype.OpenRoot(t.dir)
	if err != nil {
		return nil, nil, err
	}
	marks, err := find(root, t.patterns[:1])
	if err != nil {
		return nil, nil, errors.Join(err, root.Close())
	}
	return root, marks, nil
}

// observe takes in what a look has found, and reports whether a round began with it.
func (t *Taker) observe(marks found, now time.Time, isWritten func(string) bool) (again bool) {
	if t.looks == 0 || !marks.equal(t.marks) {
		t.since, t.looks = now, 0
	}
	t.looks++
	again, rewritten := t.rounds.observe(marks, now, isWritten)
	if rewritten {
		t.rewrites++
	}
	t.marks = marks
	return again
}

// NeverStill reports whether the files of the first pattern have changed for so long, or
// were rewritten so often, that no checkpoint could be copied.
func (t *Taker) NeverStill(now time.Time) bool {
	return !t.restless.IsZero() && (now.Sub(t.restless) > restlessFor || t.rewrites >= restlessRewrites)
}

// Unnamed returns the write-ahead log of an SQLite database among the files of the first pattern
// that no pattern names, or nothing. The database changes when the log is full, or never.
func (t *Taker) Unnamed() string {
	for name := range t.marks {
		log := name + "-wal"
		if info, err := os.Stat(filepath.Join(t.dir, filepath.FromSlash(log))); err == nil && info.Size() > 0 &&
			!slices.ContainsFunc(t.patterns, func(pattern string) bool { ok, _ := path.Match(pattern, log); return ok }) {
			return log
		}
		if len(t.marks) > 100 {
			break // too many to ask all the time
		}
	}
	return ""
}

const (
	restlessFor      = time.Minute
	restlessRewrites = 8
)

func (t *Taker) isNew(marks found) bool { return len(marks) > 0 && !marks.equal(t.taken) }

// isReady reports whether the files of the last look are complete.
func (t *Taker) isReady(now time.Time) bool {
	state := t.rounds.state()
	t.atOnce = state == complete && t.rounds.isWhole(now)
	return t.atOnce || t.looks >= stillLooks && now.Sub(t.since) >= map[roundState]time.Duration{
		complete: still, incomplete: patience, unknown: firstStill}[state]
}

// Copy copies all files to a new folder. before is the folder of the copy before, if that
// still exists, or empty. It returns false if there is no checkpoint: the files have changed
// meanwhile, ctx was cancelled, or the copy is Held.
func (t *Taker) Copy(ctx context.Context, to, before string) (bool, error) {
	began := time.Now()
	ok, err := t.make(ctx, to, func(c *copying, name string, info fs.FileInfo) error {
		if before != "" && same(info, t.copied[name]) && c.link(before, name) == nil {
			return nil
		}
		return c.copy(ctx, name, info)
	})
	t.nextCopy = time.Now().Add(restFactor * time.Since(began))
	t.Held = ok && t.early
	return ok && !t.Held, err
}

// Discard takes back the last copy, which its owner does not use.
func (t *Taker) Discard() { t.taken, t.copied, t.Held = t.before, nil, false }

// Last makes a folder with links to all files of a program that has ended. It returns false
// if there is no new checkpoint. unsure is whether the program may have been writing when it
// ended.
func (t *Taker) Last(now time.Time, to string, unsure bool) (bool, error) {
	root, marks, err := t.open()
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	if t.Held {
		t.Discard()
	}
	if !t.isNew(marks) {
		return false, nil
	}
	// What replaced a file since the last look was whole if what was there before had been.
	t.observe(marks, now, func(name string) bool { return !t.rounds.files[name].whole })
	if unsure && !t.isReady(now) {
		return false, nil
	}
	t.atOnce = false // nothing replaces a file now
	return t.make(context.Background(), to, func(c *copying, name string, info fs.FileInfo) error {
		if c.link(t.dir, name) == nil {
			return nil
		}
		return c.copy(context.Background(), name, info)
	})
}

// make makes a checkpoint, whose files add brings into it.
func (t *Taker) make(ctx context.Context, to string, add addFile) (ok bool, err error) {
	root, marks, err := t.open()
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	if len(marks) == 0 || t.atOnce && !marks.equal(t.marks) {
		return false, nil
	}
	all, err := find(root, t.patterns)
	if err != nil {
		return false, err
	}
	if size := all.size(); size > t.most {
		return false, fmt.Errorf("%w: its files have %d bytes, of %d allowed", archive.ErrTooLarge, size, t.most)
	}
	copied, err := copyAll(ctx, root, to, all, add)
	if err != nil || copied == nil {
		return false, err
	}
	after, err := find(root, t.patterns[:1])
	if err != nil || !after.equal(marks) && !(t.atOnce && after.isReplaced(marks)) {
		return false, err
	}
	t.before, t.taken, t.copied = t.taken, marks, copied
	return true, nil
}

// addFile brings a file into a copy.
type addFile func(c *copying, name string, info fs.FileInfo) error

// copyAll brings all files into a new folder. It returns those that a later copy may link to, or
// nil if a file has changed or ctx was cancelled.
func copyAll(ctx context.Context, root *os.Root, to string, all found, add addFile) (found, error) {
	c, err := newCopying(root, to)
	if err != nil {
		return nil, err
	}
	defer c.close()
	copied, began := found{}, time.Now()
	for name, info := range all {
		if err := add(c, name, info); errors.Is(err, errChanged) || err != nil && ctx.Err() != nil {
			return nil, nil // another look finds it again
		} else if err != nil {
			return nil, err
		}
		if began.Sub(info.ModTime()) > settled {
			copied[name] = info
		}
	}
	return copied, nil
}

// settled is the age from which on the time of a file tells whether it was written to since:
// some file systems keep times in steps of two seconds.
const settled = 3 * time.Second
