// Package spotworker is the entry point for a worker with your own kinds of
// jobs. A complete program:
//
//	package main
//
//	import (
//		"github.com/spotworker/spotworker"
//		"github.com/spotworker/spotworker/job"
//	)
//
//	func main() {
//		spotworker.Main(job.Kinds{"thumbnail": job.HandlerFunc(thumbnail)})
//	}
//
// It has every flag of the worker command, and its built-in kinds beside yours.
// Package job says what a handler is.
package spotworker

import (
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/monitor"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/sandbox"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// Version is what the program calls itself; set it before [Main].
var Version = "unknown"

const description = `Does jobs from an Azure Storage queue on a VM that may be taken away at any
moment. On an eviction notice it stops at once, saves every job's state and
hands the jobs over; another worker goes on from there.

Every flag can also be set in the environment, as SPOTWORKER_ and the flag's
name (--data-container is SPOTWORKER_DATA_CONTAINER). The storage account is
AZURE_STORAGE_CONNECTION_STRING, or --account with AZURE_CLIENT_ID.

SIGTERM hands everything over and ends the worker. Exit codes: 0 handed over,
78 wrong configuration, 1 anything else.`

// Main runs a worker with the given kinds beside the built-in ones until it is
// told to end, and exits the process. A kind of yours replaces a built-in one of
// the same name.
func Main(kinds job.Kinds) {
	cli.Exit("worker", run(kinds, os.Args[1:], os.Stdout, os.Stderr))
}

func run(kinds job.Kinds, args []string, stdout, stderr io.Writer) error {
	var f flags
	program := cli.Program{
		Name: "worker", Description: description, Version: Version,
		Vars: map[string]string{"metadata_endpoint": preempt.DefaultEndpoint, "listen_port": strconv.Itoa(monitor.BasePort)},
	}
	done, err := program.Parse(&f, args, stdout)
	if done || err != nil {
		return err
	}
	defer outliveReaders()()
	ctx, stop := untilAsked()
	defer stop()
	log, closeLog := f.OpenLog(stderr)
	defer closeLog()
	warnOfUnread(program, log)
	if err := sandbox.HideProcess(); err != nil {
		log.Warn("programs of this user can read this process's memory and environment", "error", err)
	}
	reports := f.reports(log)
	w, closeKinds, err := f.worker(kinds, log, reports)
	if err != nil {
		return err
	}
	defer closeKinds()
	closed, err := reports.open(&f, log)
	if err != nil {
		return err
	}
	defer closed()
	return w.Run(ctx)
}

// readElsewhere are variables of a worker's environment that are no flags: the
// scripts of the VM application read them, or an operator uses them for a label.
var readElsewhere = []string{"SPOTWORKER_INSTANCES", "SPOTWORKER_VERSION"}

// warnOfUnread logs the variables that look like settings and have no effect, but
// never their values.
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

// worker builds what the flags describe. closeKinds frees what its handlers need,
// when it has ended.
func (f *flags) worker(kinds job.Kinds, log *slog.Logger, r *reports) (w *worker.Worker, closeKinds func(), err error) {
	config, err := f.config(log)
	if err != nil {
		return nil, nil, err
	}
	f.OnCall = r.called
	stores, err := f.Open(connections(config.Concurrency), Version)
	if err != nil {
		return nil, nil, err
	}
	config.Queue, config.OnDemand, config.Poison = stores.Queue, stores.OnDemand, stores.Poison
	config.TakeFrom = f.takeFrom(stores)
	config.Payloads, config.Records, config.Workers = stores.Payloads, stores.Records, stores.Workers
	config.Log, config.Observer, config.Loops = log, r, &r.loops
	if config.Kinds, closeKinds, err = f.kinds(kinds, stores.Account, config.Runtime, config.Log); err != nil {
		return nil, nil, err
	}
	if w, err = worker.New(config); err != nil {
		closeKinds()
		return nil, nil, &cli.ConfigError{Err: err}
	}
	return w, closeKinds, nil
}

// takeFrom returns the queues that --take-from names.
func (f *flags) takeFrom(stores *cli.Stores) []*queue.Queue {
	byName := map[string]*queue.Queue{"spot": stores.Queue, "on-demand": stores.OnDemand}
	var queues []*queue.Queue
	for _, name := range f.TakeFrom {
		queues = append(queues, byName[name])
	}
	return queues
}

// config is the part of the worker's configuration that needs no storage.
func (f *flags) config(log *slog.Logger) (worker.Config, error) {
	c := worker.Config{
		DefaultKind: f.DefaultKind, MoveAfter: f.MoveAfter, Concurrency: f.slots(), Visibility: f.Visibility, DrainBudget: f.DrainBudget,
		PayloadMemory: f.payloadMemory(),
		Instance:      f.Instance, VMName: f.VMName, Program: Version, BootID: bootID(), Acknowledge: worker.Acknowledge(f.Acknowledge),
	}
	policy, err := f.policy()
	if err != nil {
		return c, &cli.ConfigError{Err: err}
	}
	c.Policy = policy
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	c.Host = host
	c.Runtime, err = f.neighbours(log)
	if err != nil {
		return c, err
	}
	c.Metadata, err = f.metadata(c.Runtime)
	return c, err
}

// bootID tells one start of a Linux machine from the next.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
