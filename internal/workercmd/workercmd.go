// Package workercmd is the worker command: flags, the kinds and stores that they
// configure, signals, metrics and health. Package worker is the engine that it runs,
// and package spotworker its public entry.
package workercmd

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/events"
	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/telemetry/monitor"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// version is set by the linker, never by code.
var version string

// Options are the options of package spotworker, which documents them, and Adjust.
type Options struct {
	Kinds     job.Kinds
	Logger    *slog.Logger
	Registry  prometheus.Registerer
	Arguments []string
	Version   string

	// Adjust changes the configuration that the arguments describe, for workers of the lab.
	// Default: nothing is changed.
	Adjust func(*worker.Config)

	service bool // of Windows
}

const description = `Does jobs from an Azure Storage queue on a VM that may be evicted at any
moment. On an eviction notice it stops at once, saves every job's state and
releases the jobs; another worker resumes them.

Every flag can also be set in the environment, as SPOTWORKER_ and the flag's
name (--data-container is SPOTWORKER_DATA_CONTAINER). The storage account is
AZURE_STORAGE_CONNECTION_STRING, or --account with AZURE_CLIENT_ID.

SIGTERM hands everything over and ends the worker; on Windows Ctrl-C, Ctrl-Break
and the closing of the console do. Exit codes: 0 handed over, or idle for
--exit-when-idle; 78 wrong configuration; 1 anything else.

"worker service --help" is about the service of Windows.`

// Main runs a worker until SIGTERM or an interrupt, and exits the process.
func Main(o Options) {
	ignoreSIGPIPE()
	if len(o.Arguments) > 0 {
		if command, ok := commands()[o.Arguments[0]]; ok {
			cli.Exit("worker", command(o))
		}
	}
	addBallast()
	ctx, _ := notifyStop()
	cli.Exit("worker", runUnder(ctx, o, os.Stdout, os.Stderr, systemdManager))
}

// Run runs a worker until ctx is cancelled.
func Run(ctx context.Context, o Options) error { return run(ctx, o, os.Stdout, os.Stderr) }

func run(ctx context.Context, o Options, stdout, stderr io.Writer) error {
	return runUnder(ctx, o, stdout, stderr, systemdManager)
}

// runUnder runs a worker under a service manager.
func runUnder(ctx context.Context, o Options, stdout, stderr io.Writer, under newManager) error {
	var f flags
	f.version, f.adjust = cli.Version(o.Version, version), o.Adjust
	f.service = o.service || os.Getenv("NOTIFY_SOCKET") != ""
	program := workerProgram(f.version)
	done, err := program.Parse(&f, o.Arguments, stdout)
	if done || err != nil {
		return err
	}
	f.Instance = instanceOf(f.Instance)
	if f.WantsJSON() {
		f.LogFormat = "json" // a worker prints its log alone
	}
	log, tail, closeLog := o.Logger, (*cli.Tail)(nil), func() {}
	if log == nil {
		tail = &cli.Tail{}
		log, closeLog = f.OpenLog(stderr, tail)
	}
	defer closeLog()
	if f.StopWithStdin {
		var cancel context.CancelFunc
		ctx, cancel = untilClosed(ctx, os.Stdin)
		defer cancel()
	}
	id := newIdentity(hostName(), f.Instance, f.VMName)
	log, closeHook, err := f.identifiedLog(log, id)
	if err != nil {
		return err
	}
	defer closeHook()
	warnOfUnread(program, log)
	hideProcess(log)
	t := f.telemetry(log, under)
	t.tail = tail
	t.startTraces(f.version, cmp.Or(f.VMName, hostName()), log)
	defer func() { t.traces.Close(traceFlush) }()
	w, closeKinds, err := f.worker(o.Kinds, log, t, id)
	if err != nil {
		return err
	}
	defer closeKinds()
	closeTelemetry, err := t.open(&f, o.Registry, log)
	if err != nil {
		return err
	}
	defer closeTelemetry()
	return w.Run(ctx)
}

// hideProcess keeps the worker's memory and environment from programs of its user.
func hideProcess(log *slog.Logger) {
	if err := sandbox.HideProcess(); err != nil {
		log.Warn("programs of this user can read this process's memory and environment", "error", err)
	}
}

// workerProgram describes the command line of the worker itself.
func workerProgram(version string) cli.Program {
	return cli.Program{
		Name: "worker", Description: description, Version: version,
		Vars: map[string]string{"metadata_endpoint": preempt.DefaultEndpoint, "listen_port": strconv.Itoa(monitor.BasePort)},
	}
}

// commands are the program's functions besides running a worker, by the first argument.
func commands() map[string]func(Options) error {
	all := systemCommands()
	all["man"] = func(o Options) error { return runMan(o, os.Stdout) }
	return all
}

// readElsewhere are the environment variables that are not flags: secrets, variables of the
// VM application's scripts, and an operator's label.
var readElsewhere = []string{"SPOTWORKER_INSTANCES", "SPOTWORKER_SNAPSHOTS", "SPOTWORKER_VERSION"}

// warnOfUnread logs the names of environment variables that look like settings and
// have no effect, never their values.
func warnOfUnread(program cli.Program, log *slog.Logger) {
	all, err := program.Unread(&flags{}, os.Environ(), readElsewhere)
	if err != nil {
		log.Warn("variables of the environment not checked", "error", err)
	}
	for _, u := range all {
		if u.Nearest == "" {
			log.Warn("environment variable has no effect: no flag has this name", "variable", u.Name)
			continue
		}
		log.Warn("environment variable has no effect: no flag has this name; is it misspelt?", "variable", u.Name, "nearest", u.Nearest)
	}
}

// worker returns the worker that the flags describe. closeKinds frees the resources of
// its handlers; call it when the worker has ended.
func (f *flags) worker(kinds job.Kinds, log *slog.Logger, t *telemetry, id *identity) (w *worker.Worker, closeKinds func(), err error) {
	config, err := f.config(log)
	if f.adjust != nil {
		f.adjust(&config)
	}
	defer func() {
		if err != nil {
			config.Runtime.Close()
		}
	}()
	if err != nil {
		return nil, nil, err
	}
	f.OnCall, f.OnEnd = t.called, t.outages.Ended
	stores, err := f.Open(connections(config.Concurrency)+inputs.Connections+checkpoint.Connections, f.version)
	if err != nil {
		return nil, nil, err
	}
	if t.pusher, err = f.pusher(t, stores.Account, log); err != nil {
		return nil, nil, err
	}
	if t.depths, err = f.depths(stores.Account, log); err != nil {
		return nil, nil, err
	}
	if t.depths != nil {
		config.PublishDepth, config.DepthsOf = t.depths.Read, t.depths.Resource()
	}
	config.Stores = stores
	config.Log, config.Observe, config.Loops, config.Pressure = log, t.Observe, &t.loops, &t.pressure
	config.Calls, config.Trouble = &t.calls, t.machineTrouble
	config.Tracer, config.LogTail = t.traces.Spans(), t.tail.String
	config.OnName, config.OnVM = id.setWorker, id.setVM
	fetcher, closeInputs, err := f.inputs(stores, t.Observe, log)
	if err != nil {
		return nil, nil, err
	}
	config.Inputs = fetcher
	var gpus *program.GPUs
	if config.Kinds, gpus, closeKinds, err = f.kinds(kinds, stores.Account, config.Runtime, t, config.Log); err != nil {
		return nil, nil, err
	}
	if gpus != nil {
		config.Devices, t.gpus = gpus, gpus.Pool
	}
	closeHandlers := closeKinds
	closeAll := func() { closeHandlers(); closeInputs() }
	if w, err = worker.New(config); err != nil {
		closeAll()
		return nil, nil, &cli.ConfigError{Err: err}
	}
	return w, func() { closeAll(); config.Runtime.Close() }, nil
}

// hostName returns the machine's own name.
func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown-host"
	}
	return host
}

// config returns the part of the worker's configuration that needs no storage.
func (f *flags) config(log *slog.Logger) (worker.Config, error) {
	c := worker.Config{
		Settings: delivery.Settings{
			DefaultKind: f.DefaultKind, MoveAfter: f.MoveAfter, Changeover: f.Changeover,
		},
		TakeFrom: f.TakeFrom, Concurrency: f.slots(), DrainBudget: f.DrainBudget, ExitWhenIdle: f.ExitWhenIdle,
		Instance: f.Instance, VMName: f.VMName, Program: f.version, BootID: bootID(), Acknowledge: events.Acknowledge(f.Acknowledge),
	}
	policy, err := f.policy()
	if err != nil {
		return c, &cli.ConfigError{Err: err}
	}
	c.Policy = policy
	c.Host = hostName()
	c.Runtime, err = f.peers(log)
	if err != nil {
		return c, err
	}
	c.Metadata, err = f.metadata(c.Runtime)
	return c, err
}
