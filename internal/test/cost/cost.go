// Package cost measures, in tests, what large states cost: the bytes that are
// sent for them, and the memory.
package cost

import (
	"runtime/metrics"
	"testing"
	"time"
)

// Measured is the cost of one step.
type Measured struct {
	Err   error
	Calls int
	Sent  int64  // bytes of headers and bodies
	Heap  uint64 // bytes by which it grew at most
	Took  time.Duration
}

// Log logs the cost of a step.
func (m Measured) Log(t *testing.T, what string) {
	t.Helper()
	t.Logf("%s: %d bytes sent in %d calls, heap + %.1f MiB, %s", what, m.Sent, m.Calls, float64(m.Heap)/(1<<20),
		m.Took.Round(time.Millisecond))
}

// Heap returns how many bytes objects occupy, garbage included.
func Heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
