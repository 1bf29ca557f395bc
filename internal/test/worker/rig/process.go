package rig

import (
	"context"
	"log/slog"

	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/internal/worker/intake"
	"github.com/spotworker/spotworker/job"
)

// Process is a worker with the link and the VM of its own, like a process on a machine.
type Process struct {
	*worker.Worker
	Bed   *Bed
	Link  *Link
	Guest *imds.Guest
	Log   *Log
	Term  context.CancelFunc
	Ended chan struct{}
}

// Start runs a worker on a VM of that name. change adapts its configuration. The
// worker is stopped when the test ends.
func (b *Bed) Start(name string, kinds job.Kinds, change ...func(*worker.Config)) *Process {
	b.T.Helper()
	return b.StartWithLink(name, kinds, func(*Link) {}, change...)
}

// StartWithLink is start, and calls setUp to inject faults into the link to storage before
// the worker runs.
func (b *Bed) StartWithLink(name string, kinds job.Kinds, setUp func(*Link), change ...func(*worker.Config)) *Process {
	b.T.Helper()
	p := &Process{Bed: b, Link: &Link{Next: b.Transport(name)}, Log: &Log{}, Ended: make(chan struct{})}
	setUp(p.Link)
	p.Guest = b.Metadata.AddVM(SpotVM(name))
	client, err := preempt.NewClient("http://127.0.0.1:1", preempt.WithTransport(metadataLink{p.Link, p.Guest.RoundTripper()}))
	if err != nil {
		b.T.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(p.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	outages := outage.New(log, func() int { return p.ActiveJobs() })
	pressure := &intake.Pressure{}
	account := b.WatchedAccount(p.Link, pressure, outages.Ended)
	c := worker.Config{
		Settings:    delivery.Settings{Stores: b.storesOf(account), Kinds: kinds, Jitter: b.Jitter, Log: log},
		Concurrency: 4, Metadata: client, Host: name, BootID: "boot", Program: "test", Pressure: pressure,
	}
	if !b.Sharded {
		c.Stores.Jobs = nil
	}
	if b.CacheInputs != "" {
		c.Inputs = b.Fetcher(b.CacheInputs, 1<<30, account)
	}
	for _, f := range change {
		if f != nil {
			f(&c)
		}
	}
	p.Worker, err = worker.New(c)
	if err != nil {
		b.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.Term = cancel
	go func() {
		defer close(p.Ended)
		if err := p.Run(ctx); err != nil {
			b.T.Errorf("Run = %v, want nil", err)
		}
	}()
	b.T.Cleanup(p.Stop)
	return p
}

// Stop terminates the worker as SIGTERM does and waits until it has exited.
func (p *Process) Stop() {
	p.Term()
	<-p.Ended
}

// KillNoWait kills the process without waiting for its goroutines to end.
func (p *Process) KillNoWait() {
	p.Link.Cut()
	p.Term()
}

// Kill ends the process as SIGKILL does, as far as others can see: none of its later
// requests arrives anywhere. It waits until the goroutines have ended.
func (p *Process) Kill() {
	p.KillNoWait()
	<-p.Ended
}

// Drained reports whether the worker has released all its jobs in shutdown.
func (p *Process) Drained() bool {
	return p.Position().Facts.Has(lifecycle.WorkReleased) && p.Position().State == lifecycle.Shutdown
}

// SpotVM is a Spot VM that is in no scale set.
func SpotVM(name string) imds.VM {
	return imds.VM{Name: name, VMID: recorder.VMID, Zone: "2", Priority: "Spot"}
}
