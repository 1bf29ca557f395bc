package histories

import (
	"strconv"

	"github.com/spotworker/spotworker/internal/worker"
)

// startFinalWorkers starts workers for the jobs left.
func (h *history) startFinalWorkers() {
	for i := range 2 {
		w := workerRun{vm: finalVM(len(h.finalWorkers)), concurrency: 2 + i, onDemand: true}
		h.finalWorkers = append(h.finalWorkers, h.start(w, func(c *worker.Config) { c.Metadata = nil }))
	}
}

// stopFinalWorkers stops the workers that startFinalWorkers started.
func (h *history) stopFinalWorkers() {
	for i, p := range h.finalWorkers {
		h.recorder.Exclude(finalVM(i))
		p.Stop()
	}
}

// finalPrefix begins the names of the VMs of these workers.
const finalPrefix = "fresh-"

func finalVM(i int) string { return finalPrefix + strconv.Itoa(i) }
