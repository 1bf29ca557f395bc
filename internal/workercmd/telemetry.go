package workercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/host/gpu"
	"github.com/spotworker/spotworker/internal/host/resource"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/telemetry/health"
	"github.com/spotworker/spotworker/internal/telemetry/metrics"
	"github.com/spotworker/spotworker/internal/telemetry/metrics/push"
	"github.com/spotworker/spotworker/internal/telemetry/monitor"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/internal/telemetry/systemd"
	"github.com/spotworker/spotworker/internal/telemetry/tracing/otlp"
	"github.com/spotworker/spotworker/internal/worker/intake"
)

// telemetry shows a worker to the outside: metrics, health and the status for the
// service manager.
type telemetry struct {
	*metrics.Metrics
	loops    health.Loops
	manager  manager
	pressure intake.Pressure // paces the claims
	calls    activity.Calls  // small ones, and those that failed
	space    func() (free, size int64)
	log      *slog.Logger

	mu      sync.Mutex // guards what follows
	trouble struct{ clock, scratch bool }
	gpus    *gpu.Pool // nil where no job takes any; it logs what is wrong itself
	broken  []string  // kinds whose circuit breakers are open, sorted
	reach   string    // where programs' users reach the metadata service; empty for nowhere
	kills   resource.MemoryKills
	outages *outage.Watch
	pusher  *push.Pusher // nil where metrics are only served
	depths  *push.Depths // nil where no autoscale follows them
	tail    *cli.Tail    // of the worker's log; nil for a log that is given
	traces  *otlp.Sender // nil where the environment asks for none

	state atomic.Value // of the lifecycle, a string
	jobs  atomic.Int64 // active
}

// manager is the service manager that the worker reports to.
type manager interface {
	Run(ctx context.Context) // reports that the worker is up, and then changes
	Changed()
	Stopping()
}

// newManager returns the service manager for a worker.
type newManager func(systemd.Config) manager

func systemdManager(c systemd.Config) manager { return systemd.New(c) }

func (f *flags) telemetry(log *slog.Logger, under newManager) *telemetry {
	t := &telemetry{space: f.space, log: log}
	t.state.Store(lifecycle.Start.String())
	t.Metrics = metrics.New(metrics.Config{
		Version: f.version, Slots: f.slots(), Healthy: t.healthy, Refusals: checkpoint.PermanentRefusals(),
		Space: f.space, OOMKills: t.kills.Total, Log: log,
	})
	t.outages = outage.New(log, func() int { return int(t.jobs.Load()) })
	t.outages.Quiet(true)
	t.manager = under(systemd.Config{DrainBudget: f.DrainBudget, Status: t.status, Healthy: t.healthy, Log: log})
	return t
}

func (t *telemetry) health() health.Report { return t.loops.Check(time.Now()) }
func (t *telemetry) healthy() bool         { return t.health().Healthy() }

// status returns the worker's state and number of jobs, for the service manager.
func (t *telemetry) status() string {
	jobs := t.jobs.Load()
	if jobs == 1 {
		return fmt.Sprintf("%s, 1 active job", t.state.Load())
	}
	return fmt.Sprintf("%s, %d active jobs", t.state.Load(), jobs)
}

// called records a call to the storage account.
func (t *telemetry) called(c azure.Call) {
	t.Called(c.Service, c.Operation, c.Status, c.Took, c.Answered, c.Date)
	if c.IsSmall() || c.Failed {
		t.calls.Add(c.Took, resultOf(c))
	}
	if c.Throttled {
		t.pressure.Refused(c.Queue)
	}
}

func resultOf(c azure.Call) activity.CallResult {
	switch {
	case c.Throttled:
		return activity.CallThrottled
	case c.Status == azure.StatusDenied:
		return activity.CallDenied
	case c.Status == azure.StatusMissing:
		return activity.CallMissing
	case c.Failed:
		return activity.CallFailed
	}
	return activity.CallServed
}

// Observe is the worker's observer.
func (t *telemetry) Observe(e observe.Event) {
	t.Metrics.Observe(e)
	switch e := e.(type) {
	case observe.Broke:
		t.setBroken(e.Kind, true)
	case observe.Recovered:
		t.setBroken(e.Kind, false)
	case observe.Delivered:
		t.jobs.Add(1)
	case observe.Ended:
		t.jobs.Add(-1)
	case observe.Entered:
		t.entered(e)
	case observe.Drained:
		t.drained()
	}
}

// setBroken keeps for the heartbeat whether the circuit breaker of a kind is open.
func (t *telemetry) setBroken(kind string, broken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, found := slices.BinarySearch(t.broken, kind)
	switch {
	case broken && !found:
		t.broken = slices.Insert(t.broken, at, kind)
	case !broken && found:
		t.broken = slices.Delete(t.broken, at, at+1)
	}
}

// exposed keeps for heartbeat and health where programs' users reach the metadata service.
func (t *telemetry) exposed(at string) {
	text := ""
	if at != "" {
		text = "no program is started: its user would reach the metadata service at " + at
	}
	t.loops.Note("exposed", text)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reach = at
}

// machineTrouble returns what is wrong with the machine, and logs what has changed since the last call.
func (t *telemetry) machineTrouble() presence.Trouble {
	now := presence.Trouble{Clock: t.ClockOffset().Truncate(time.Second)}
	now.ScratchFree, now.ScratchSize = t.space()
	now.GPUs = t.gpus.Faults()
	t.mu.Lock()
	defer t.mu.Unlock()
	now.Broken, now.Exposed = strings.Join(t.broken, ","), t.reach
	if is := now.ClockIsWrong(); is != t.trouble.clock {
		t.trouble.clock = is
		if is {
			t.log.Warn("clock of this machine is wrong; from 15 min on storage refuses all calls: synchronise it", "ahead", now.Clock)
		} else {
			t.log.Info("clock of this machine is right again")
		}
	}
	if is := now.ScratchIsFull(); is != t.trouble.scratch {
		t.trouble.scratch = is
		if is {
			t.log.Warn("file system of --scratch is nearly full; jobs of programs are handed to other machines", "bytes", now.ScratchFree)
		} else {
			t.log.Info("file system of --scratch has room again", "bytes", now.ScratchFree)
		}
	}
	return now
}

// space returns how much of the file system for the programs of jobs is free, and its
// size.
func (f *flags) space() (free, size int64) { return resource.Space(cmp.Or(f.Scratch, os.TempDir())) }

// entered notifies the service manager. While the worker warms up it logs itself what
// storage lacks.
func (t *telemetry) entered(e observe.Entered) {
	t.outages.Quiet(e.State == lifecycle.Start)
	t.state.Store(e.State.String())
	if e.Ending {
		t.manager.Stopping()
	}
	t.manager.Changed()
}

// drained pushes the metrics: the VM may go soon.
func (t *telemetry) drained() {
	if t.pusher != nil {
		t.pusher.Soon()
	}
	if t.traces != nil {
		go t.traces.Flush(traceFlush)
	}
}

// traceFlush bounds how long spans are sent when a drain or the worker has ended: all jobs
// are released by then.
const traceFlush = time.Second

// startTraces starts to send traces where OpenTelemetry's variables ask for that. Wrong
// ones cost the traces and not the worker.
func (t *telemetry) startTraces(version, vm string, log *slog.Logger) {
	sender, err := otlp.Start(otlp.Config{
		Service: "spotworker", Version: version, Attributes: map[string]string{"host.name": vm}, Env: os.Getenv, Log: log,
	})
	if err != nil {
		log.Warn("traces are not recorded: a variable of OpenTelemetry is wrong", "error", err)
	}
	t.traces = sender
}

// open makes metrics, health and status visible, from before the worker warms up
// until it has ended: a VM may wait long for its role assignments, and is healthy
// all the time. closed sends the last status before it closes the server.
func (t *telemetry) open(f *flags, registry prometheus.Registerer, log *slog.Logger) (closed func(), err error) {
	unregister, err := t.Register(registry)
	if err != nil {
		return nil, err
	}
	server, err := f.listen(t, log)
	if err != nil {
		unregister()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var notifying sync.WaitGroup
	notifying.Go(func() { t.manager.Run(ctx) })
	if t.pusher != nil {
		notifying.Go(func() { t.pusher.Run(ctx) })
	}
	if t.depths != nil {
		notifying.Go(func() { t.depths.Run(ctx) })
	}
	return func() {
		cancel()
		notifying.Wait()
		if server != nil {
			server.Close()
		}
		unregister()
	}, nil
}

// listen starts the server for health and metrics, none with --listen none.
func (f *flags) listen(t *telemetry, log *slog.Logger) (*monitor.Server, error) {
	address, err := monitor.Address(f.Listen, f.Instance)
	if err != nil {
		return nil, &cli.ConfigError{Err: fmt.Errorf("--listen: %w", err)}
	}
	if address == "" {
		return nil, nil
	}
	server, err := monitor.Listen(monitor.Config{Address: address, Health: t.health, Metrics: t.Handler(), Log: log})
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, refused(fmt.Errorf("--listen %s: the port is taken, perhaps by a worker with the same --instance; "+
			"give each worker on a machine an instance or an address of its own, or none: %w", address, err))
	case err != nil:
		return nil, refused(fmt.Errorf("--listen %s: %w", address, err))
	}
	log.Info("health and metrics are served", "address", server.Address())
	return server, nil
}
