package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/program/archive"
)

// The interval between measurements of a job's folder. Measuring many files takes
// long, so the interval grows with it.
const (
	diskInterval = time.Second
	diskFactor   = 20 // the interval is at least so many times as long as a measurement
)

// The least that an entry counts, in bytes: it takes an inode, and a folder a block.
const (
	folderCounts = 4 << 10
	entryCounts  = 256
)

// Watch measures a job's disk usage periodically, in a goroutine of its own: a
// folder may have millions of files, and the loop around the program must notice a
// stop in the meantime.
type Watch struct {
	Folder *Folder
	Limit  int64 // bytes; 0 for none

	next time.Time

	result  chan measured // of the running measurement; nil without one
	stopped atomic.Bool
}

// measured is the result of a measurement.
type measured struct {
	bytes int64
	took  time.Duration
}

// Check returns an error if the last measurement was above the limit. It starts a
// measurement when one is due.
func (d *Watch) Check(now time.Time) error {
	if d.Limit == 0 {
		return nil
	}
	if d.result == nil {
		if now.Before(d.next) {
			return nil
		}
		d.result = make(chan measured, 1)
		go func(result chan<- measured) {
			began := time.Now()
			result <- measured{d.Folder.Size(d.Limit, &d.stopped), time.Since(began)}
		}(d.result)
	}
	select {
	case m := <-d.result:
		d.result, d.next = nil, now.Add(max(diskInterval, diskFactor*m.took))
		switch {
		case m.bytes == math.MaxInt64:
			return fmt.Errorf("the job's folder cannot be measured, of which %d bytes are allowed: folders in it cannot be read or are "+
				"nested too deep", d.Limit)
		case m.bytes > d.Limit:
			return fmt.Errorf("the job has at least %d bytes in its folder, of %d allowed", m.bytes, d.Limit)
		}
	default:
	}
	return nil
}

// Stop cancels a running measurement and waits for its end.
func (d *Watch) Stop() {
	d.stopped.Store(true)
	if d.result != nil {
		<-d.result
	}
}

// Size returns the job's disk usage in bytes, or any number above limit if that is more.
// A folder counts [folderCounts], anything else its size on the disk, but at least
// [entryCounts]. Files may come and go during the measurement. A folder that cannot
// be read or whose path is too long makes the result [math.MaxInt64]. The result of
// a stopped measurement is meaningless.
func (f *Folder) Size(limit int64, stopped *atomic.Bool) (total int64) {
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
			total += max(archive.Allocated(info), entryCounts)
		}
		if total > limit || stopped.Load() {
			return fs.SkipAll
		}
		return nil
	}
	err := f.User.Do(func() error { return archive.Walk(f.Dir, count) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.SkipAll) {
		return math.MaxInt64
	}
	return total
}
