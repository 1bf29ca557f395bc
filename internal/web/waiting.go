package web

import (
	"context"
	"sync"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview"
)

// waitingReader reads the front of the queues, once for all tabs that show it.
type waitingReader struct {
	client *client.Client
	keep   time.Duration // for how long a read is shown

	mu   sync.Mutex
	at   time.Time // when it was last read
	jobs []client.Waiting
	err  error
}

// read returns the jobs at the front of the queues, as they were a moment ago.
func (r *waitingReader) read(ctx context.Context) ([]client.Waiting, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) > r.keep {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), readLimit)
		defer cancel()
		r.jobs, r.err = r.client.Waiting(within)
		r.at = time.Now()
	}
	return r.jobs, r.err
}

// waiting is the body of the page of waiting jobs.
type waiting struct {
	Rows  []waitingRow
	About int // jobs that wait on all queues
	Err   string
}

// waitingRow is a job at the front of a queue.
type waitingRow struct {
	Place, Claimed          int
	ID, Kind, Queue, Waited string
	Address, Jobs           string
}

func (s *Server) waitingOf(ctx context.Context, v view) (b waiting) {
	found, err := s.waiting.read(ctx)
	if err != nil {
		b.Err = line(s.config.Explain(err))
	}
	b.About = v.Waiting()
	for _, w := range found {
		b.Rows = append(b.Rows, waitingRow{Place: w.Place, Claimed: w.Deliveries, ID: line(w.ID), Kind: line(w.Kind), Queue: line(w.Queue),
			Waited: overview.Span(w.Waited), Address: addressOf(w.ID), Jobs: addressOfJobs(w.Kind)})
	}
	return b
}
