package process

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/archive"
)

// Bounds of how often the size of a job's folder is looked at. A look at many
// files takes its time, so the wait grows with it.
const (
	diskEvery  = time.Second
	diskFactor = 20 // waits are so many times as long as looks
)

// What an entry counts at least, in bytes: it takes an inode, and a folder a block.
const (
	folderCounts = 4 << 10
	entryCounts  = 256
)

// diskWatch measures from time to time how much a job has on disk. It measures in
// a goroutine of its own: a folder may have millions of files, and the loop around
// the program must hear of a stop meanwhile.
type diskWatch struct {
	folder *folder
	limit  int64 // bytes; 0 for none
	next   time.Time

	result  chan measured // of the measurement under way; nil without one
	stopped atomic.Bool
}

// measured is the outcome of a measurement.
type measured struct {
	bytes int64
	took  time.Duration
}

// look returns an error if the job had more on disk than it may, when it was
// measured last. It begins a measurement when one is due.
func (d *diskWatch) look(now time.Time) error {
	if d.limit == 0 {
		return nil
	}
	if d.result == nil {
		if now.Before(d.next) {
			return nil
		}
		d.result = make(chan measured, 1)
		go func(result chan<- measured) {
			began := time.Now()
			result <- measured{d.folder.size(d.limit, &d.stopped), time.Since(began)}
		}(d.result)
	}
	select {
	case m := <-d.result:
		d.result, d.next = nil, now.Add(max(diskEvery, diskFactor*m.took))
		switch {
		case m.bytes == math.MaxInt64:
			return fmt.Errorf("the job's folder cannot be measured, of which %d bytes are allowed: folders in it cannot be read or are nested too deep", d.limit)
		case m.bytes > d.limit:
			return fmt.Errorf("the job has at least %d bytes in its folder, of %d allowed", m.bytes, d.limit)
		}
	default:
	}
	return nil
}

// stop ends a measurement that is under way, and waits for its end.
func (d *diskWatch) stop() {
	d.stopped.Store(true)
	if d.result != nil {
		<-d.result
	}
}

// size is what the job has on disk in bytes, or any number above limit if that is
// more. A folder counts [folderCounts], anything else its size, [entryCounts] at
// least. Files may come and go meanwhile. What cannot be read, or has a path that
// is too long, hides any number of bytes. A measurement that is stopped is of no use.
func (f *folder) size(limit int64, stopped *atomic.Bool) (total int64) {
	count := func(_ string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it is gone already
		case err != nil:
			return err
		}
		switch info, err := d.Info(); {
		case err != nil: // it is gone already
		case d.IsDir():
			total += folderCounts
		default:
			total += max(info.Size(), entryCounts)
		}
		if total > limit || stopped.Load() {
			return fs.SkipAll
		}
		return nil
	}
	err := f.user.Do(func() error { return archive.Walk(f.dir, count) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.SkipAll) {
		return math.MaxInt64
	}
	return total
}
