package main

import (
	"context"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/retry"
)

// heartbeats writes the heartbeats of a script's workers. It repeats them, as workers do: a
// script may take longer than a worker may be silent.
type heartbeats struct {
	store *presence.Store

	mu   sync.Mutex
	last map[string]presence.Presence // by the name of the worker
}

// write writes a heartbeat, and repeats it from now on.
func (h *heartbeats) write(p presence.Presence) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last[p.Worker] = p
	return h.store.Write(context.Background(), p)
}

// keep repeats all heartbeats until stop is called.
func (h *heartbeats) keep() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	keeping.Go(func() {
		for retry.Sleep(ctx, 10*time.Second) == nil {
			h.repeat(ctx)
		}
	})
	return func() { cancel(); keeping.Wait() }
}

func (h *heartbeats) repeat(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.last {
		if p.State != "stopped" {
			p.At = time.Now()
			_ = h.store.Write(ctx, p) // fails while the script has an outage
		}
	}
}
