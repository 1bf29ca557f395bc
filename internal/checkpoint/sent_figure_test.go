//go:build unix

package checkpoint

import (
	goflag "flag"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/need"
)

var figures = goflag.Bool("figures", false, "measure what changes of large states send")

// TestSentFigures measures what changes of a state of 128 MiB send, and the processor time of each save.
func TestSentFigures(t *testing.T) {
	need.Flag(t, "figures", *figures) // it hashes 4 GiB
	const size = 128 << 20
	t.Log("| State | Change | MiB sent | Calls | CPU, s/GiB |")
	t.Log("|---|---|---|---|---|")
	for _, h := range histories(size) {
		states := h.states()
		before := processorTime(t)
		m := sent(t, states)
		cpu := (processorTime(t) - before).Seconds() * (1 << 30) / float64(len(states)*size)
		t.Logf("| %s | %s | %.2f | %d | %.2f |", h.kind, h.change, float64(m.Sent)/(1<<20), m.Calls, cpu)
	}
}

// processorTime returns the time that this process has spent on processors.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
