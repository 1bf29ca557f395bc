package process

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// Bounds of how often the size of a job's folder is looked at. A look at many
// files takes its time, so the wait grows with it.
const (
	diskEvery  = time.Second
	diskFactor = 20 // waits are so many times as long as looks
)

// diskWatch looks from time to time at how much a job has on disk.
type diskWatch struct {
	dir   string
	limit int64 // bytes; 0 for none
	next  time.Time
}

// look returns an error if the job has more on disk than it may.
func (d *diskWatch) look(now time.Time) error {
	if d.limit == 0 || now.Before(d.next) {
		return nil
	}
	used := sizeOf(d.dir)
	d.next = now.Add(max(diskEvery, diskFactor*time.Since(now)))
	if used > d.limit {
		return fmt.Errorf("the job has %d bytes in its folder, of %d allowed", used, d.limit)
	}
	return nil
}

// size is what the job has on disk, in bytes.
func (f *folder) size() (total int64) {
	_ = f.user.Do(func() error { total = sizeOf(f.dir); return nil })
	return total
}

// sizeOf adds up the files below a folder. Files may come and go meanwhile.
func sizeOf(dir string) int64 {
	var total int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // it is gone already
		}
		if info, err := d.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	return total
}
