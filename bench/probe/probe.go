// Package probe lets a program that is measured report its use of resources.
package probe

import (
	"bufio"
	"encoding/json"
	"io"
	"runtime/metrics"
	"time"
)

// Sample is a process's use of resources since its start, and the memory that it has now.
type Sample struct {
	CPU         time.Duration `json:"cpu"`         // user and system time
	Allocations uint64        `json:"allocations"` // objects on the heap
	Heap        uint64        `json:"heap"`        // bytes of objects, garbage included
	Stacks      uint64        `json:"stacks"`      // bytes of the goroutines' stacks
	Goroutines  uint64        `json:"goroutines"`
}

// Serve writes a sample as a line of JSON for each line that it reads, until the
// end of in.
func Serve(in io.Reader, out io.Writer) {
	encoder := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if encoder.Encode(Take()) != nil {
			return
		}
	}
}

// Take returns this process's use of resources.
func Take() Sample {
	read := []metrics.Sample{
		{Name: "/gc/heap/allocs:objects"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/sched/goroutines:goroutines"},
	}
	metrics.Read(read)
	value := func(i int) uint64 { return read[i].Value.Uint64() }
	return Sample{CPU: cpuTime(), Allocations: value(0), Heap: value(1), Stacks: value(2), Goroutines: value(3)}
}
