package lab

import (
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/storage"
)

// pace slows down the reading of the input: every download has a line of that
// many bytes per second to itself. On loopback a job would be over before
// anything could happen to it.
type pace struct {
	container string
	rate      int64 // bytes per second; 0 is no limit
}

// paceFor makes a job of the usual size take about jobTime; 0 slows nothing down.
func paceFor(container string, files []File, jobTime time.Duration) pace {
	p := pace{container: container}
	if jobTime > 0 && len(files) > 0 {
		p.rate = max(1, int64(float64(totalSize(files))/float64(len(files))/jobTime.Seconds()))
	}
	return p
}

// fault is what happens to a call for that reason.
func (p pace) fault(c storage.Call) storage.Fault {
	if c.Operation != storage.OpGetBlob || c.Container != p.container {
		return storage.Fault{}
	}
	return storage.Fault{Bandwidth: storage.Bandwidth{Down: p.rate}}
}

func (p pace) String() string {
	if p.rate == 0 {
		return "as fast as they go"
	}
	return fmt.Sprintf("at %s/s each", size(p.rate))
}
