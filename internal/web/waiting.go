package web

import (
	"context"
	"sync"
	"time"

	"github.com/spotworker/spotworker/client"
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
	Rows []client.Waiting
	Err  string
}

func (s *Server) waitingOf(ctx context.Context) (b waiting) {
	var err error
	if b.Rows, err = s.waiting.read(ctx); err != nil {
		b.Err = line(s.config.Explain(err))
	}
	return b
}
