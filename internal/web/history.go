package web

import (
	"slices"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview"
)

// sample are the figures of one read.
type sample struct {
	at                     time.Time
	waiting, running, open int
	done, poison, alive    int
	goodput                float64 // -1 if it is not known
	hasQueues, hasJobs     bool
}

// mostSamples is how many samples are kept. If there are more, every second one goes.
const mostSamples = 720

// history are the samples since the program started.
type history struct{ samples []sample }

// add appends the figures of a read. Slices that were handed out stay as they are.
func (h *history) add(s *state) {
	one := sample{at: s.At, goodput: -1, hasJobs: s.Has(overview.PartJobs)}
	one.hasQueues = s.Has(overview.PartQueues) && s.Has(overview.PartWorkers)
	n := s.Jobs.ByStatus
	one.waiting, one.running, one.open = s.Waiting(), n[client.StatusRunning], n[client.StatusOpen]
	one.done, one.poison, one.alive = n[client.StatusDone], n[client.StatusPoison], s.Count(client.Alive)
	if part, ok := overview.Kept(s.activity.All()); ok {
		one.goodput = part
	}
	kept := h.samples
	if len(kept) >= mostSamples {
		kept = nil
		for i := 0; i < len(h.samples); i += 2 {
			kept = append(kept, h.samples[i])
		}
	}
	h.samples = slices.Concat(kept, []sample{one})
}

// minutes is how far back the chart of ends reaches.
const minutes = 60

// ends count the ends of jobs by how many minutes ago they were, by the records' own times.
type ends struct{ done, poison, cancelled [minutes]int }

func (e *ends) add(j client.Job) {
	if j.EndedAt.IsZero() || !j.Status.Ended() {
		return
	}
	ago := int(j.Age() / time.Minute) // the record was written last at its end
	if ago < 0 || ago >= minutes {
		return
	}
	switch j.Status { //nolint:exhaustive // others have not ended
	case client.StatusDone:
		e.done[ago]++
	case client.StatusPoison:
		e.poison[ago]++
	case client.StatusCancelled:
		e.cancelled[ago]++
	}
}
