package lab

import (
	"time"

	"github.com/spotworker/spotworker/internal/emulator/storage"
)

// longestJob bounds what one download may be slowed down to, so that a job that
// has to go on after a kill can end in good time.
const longestJob = 12 * time.Second

// pace slows down the reading of the input, as if every download had a line of
// that many bytes per second to itself. On loopback a job would be over before
// anything could happen to it.
type pace struct {
	container string
	rate      float64 // bytes per second; 0 is no limit
	sizes     map[string]int64
}

// paceFor makes that many parallel downloads of the files take about workTime.
func paceFor(container string, files []File, parallel int, workTime time.Duration) pace {
	p := pace{container: container, sizes: map[string]int64{}}
	var largest int64
	for _, f := range files {
		p.sizes[f.Blob] = f.Size
		largest = max(largest, f.Size)
	}
	if workTime > 0 {
		p.rate = max(
			float64(totalSize(files))/(workTime.Seconds()*float64(parallel)),
			float64(largest)/longestJob.Seconds())
	}
	return p
}

// fault is what happens to a call for that reason.
func (p pace) fault(c storage.Call) storage.Fault {
	if p.rate == 0 || c.Operation != storage.OpGetBlob || c.Container != p.container {
		return storage.Fault{}
	}
	bytes := p.sizes[c.Blob]
	if c.Range != nil {
		bytes = max(bytes-c.Range.Offset, 0)
		if c.Range.Count >= 0 {
			bytes = min(bytes, c.Range.Count)
		}
	}
	return storage.Fault{Before: time.Duration(float64(bytes) / p.rate * float64(time.Second))}
}
