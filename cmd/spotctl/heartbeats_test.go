package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/retry"
)

// heartbeats writes the heartbeats of a script's workers. It repeats them, as workers do: a
// script may take longer than a worker may be silent.
type heartbeats struct {
	store *presence.Store

	mu   sync.Mutex
	last map[string]presence.Presence // by the name of the worker
}

// runs ID RECORDED TOLD leaves a running job: its record has so many lines of its log, and the
// heartbeat of its worker so many, with a fraction.
func runs(ts *testscript.TestScript, _ bool, args []string) {
	w, ctx := worldOf(ts), context.Background()
	const worker = "vmss_7-0123abcd-0"
	recorded, err := strconv.Atoi(args[1])
	ts.Check(err)
	told, err := strconv.Atoi(args[2])
	ts.Check(err)
	log := joblog.New(1, worker, joblog.DefaultSize, "")
	claim, err := w.stores.Records.Create(ctx, checkpoint.Delivery{ID: args[0], Kind: "resize", MessageID: "m"}, worker)
	ts.Check(err)
	for n := range told {
		if n == recorded {
			end := log.Tail()
			claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.Log = end; return f })
			ts.Check(claim.Touch(ctx, checkpoint.Snapshot{}))
		}
		log.Add(joblog.Stdout, fmt.Appendf(nil, "line %d", n+1))
	}
	time.Sleep(time.Second) // the record is older than the heartbeat, in whole seconds
	ts.Check(w.beats.write(presence.Presence{
		Worker: worker, Machine: presence.Machine{VM: "vmss_7"}, State: "process", Jobs: args[:1], StartedAt: time.Now(), At: time.Now(),
		Running: []presence.Running{{
			ID: args[0], Generation: 1, RunTime: 10 * time.Minute, Ran: 10 * time.Minute, Fraction: 0.25, Text: "frame 3",
			Log: []byte(log.Tail()),
		}},
	}))
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
