package spotworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/health"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/metrics"
	"github.com/spotworker/spotworker/internal/monitor"
	"github.com/spotworker/spotworker/internal/systemd"
	"github.com/spotworker/spotworker/internal/worker"
)

// reports is how a worker is seen from outside: its metrics, its health, and what
// the service manager is told. It is the worker's [worker.Observer].
type reports struct {
	*metrics.Metrics
	loops   health.Loops
	manager *systemd.Notifier

	state atomic.Value // of the lifecycle, a string
	jobs  atomic.Int64 // in hand
}

func (f *flags) reports(log *slog.Logger) *reports {
	r := &reports{}
	r.state.Store(lifecycle.Start.String())
	r.Metrics = metrics.New(metrics.Config{
		Version: Version, Slots: f.slots(), Healthy: r.healthy, Words: metrics.Words(worker.ObserverWords()),
	})
	r.manager = systemd.New(systemd.Config{DrainBudget: f.DrainBudget, Status: r.status, Healthy: r.healthy, Log: log})
	return r
}

func (r *reports) health() health.Report { return r.loops.Check(time.Now()) }
func (r *reports) healthy() bool         { return r.health().Healthy() }

// status is what the worker does, in a few words.
func (r *reports) status() string {
	jobs := r.jobs.Load()
	if jobs == 1 {
		return fmt.Sprintf("%s, 1 job in hand", r.state.Load())
	}
	return fmt.Sprintf("%s, %d jobs in hand", r.state.Load(), jobs)
}

// called takes note of a call to the storage account.
func (r *reports) called(c azure.Call) { r.Called(c.Service, c.Operation, c.Status, c.Took) }

// Entered tells the service manager as well.
func (r *reports) Entered(state string, ending bool) {
	r.Metrics.Entered(state, ending)
	r.state.Store(state)
	if ending {
		r.manager.Stopping()
	}
	r.manager.Changed()
}

// Delivered counts jobs in hand for the status, too.
func (r *reports) Delivered() {
	r.Metrics.Delivered()
	r.jobs.Add(1)
}

// Ended is the counterpart of Delivered.
func (r *reports) Ended(outcome string) {
	r.Metrics.Ended(outcome)
	r.jobs.Add(-1)
}

// open lets the world ask, from before the worker warms up until it has ended:
// a VM may wait long for its role assignments, and is healthy meanwhile. Close
// tells the service manager the last news, and then answers nobody any more.
func (r *reports) open(f *flags, log *slog.Logger) (closed func(), err error) {
	server, err := f.listen(r, log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var telling sync.WaitGroup
	telling.Go(func() { r.manager.Run(ctx) })
	return func() {
		cancel()
		telling.Wait()
		if server != nil {
			server.Close()
		}
	}, nil
}

// listen starts the server for health and metrics; nil if there is to be none.
func (f *flags) listen(r *reports, log *slog.Logger) (*monitor.Server, error) {
	address, err := monitor.Address(f.Listen, f.Instance)
	if err != nil {
		return nil, &cli.ConfigError{Err: fmt.Errorf("--listen: %w", err)}
	}
	if address == "" {
		return nil, nil
	}
	server, err := monitor.Listen(monitor.Config{Address: address, Health: r.health, Metrics: r.Handler(), Log: log})
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		// Not a wrong configuration for good: whoever has the port may be about
		// to end, and the next start succeeds.
		return nil, fmt.Errorf("--listen %s: the port is taken, perhaps by a worker with the same --instance; "+
			"give each worker on a machine an instance or an address of its own, or none: %w", address, err)
	case err != nil:
		return nil, &cli.ConfigError{Err: fmt.Errorf("--listen %s: %w", address, err)}
	}
	log.Info("health and metrics are served", "address", server.Address())
	return server, nil
}
