// Package spotworker runs a worker with your own kinds of jobs. A complete
// program:
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
// Package job defines handlers. A program that does other things beside the jobs calls
// [Run], which leaves signals and exit codes to it.
package spotworker

import (
	"context"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spotworker/spotworker/internal/workercmd"
	"github.com/spotworker/spotworker/job"
)

// Options are the settings that a program gives its worker. The zero value is a worker
// with the built-in kinds whose settings are all in the environment.
type Options struct {
	// Kinds are the kinds of jobs beside the built-in ones. One of the same name
	// replaces a built-in kind.
	Kinds job.Kinds

	// Logger receives the worker's log. Default: standard error, as --log-level
	// and --log-format say, which have no effect on a logger of yours.
	Logger *slog.Logger

	// Registry receives the worker's metrics until Run returns, so that they are served
	// with the program's own metrics. Each worker of a process needs a registry of its
	// own. Default: none; /metrics of --listen has the metrics either way.
	Registry prometheus.Registerer

	// Arguments are the command line without the program's name. Default: none. A
	// flag that is not given is read from the environment: SPOTWORKER_ACCOUNT, for
	// example, is --account.
	Arguments []string

	// Version is the program's version in --version, in metrics and in the worker's
	// requests. Default: the version of the build.
	Version string
}

// Main runs a worker with the given kinds and the arguments of the process. It
// hands all jobs over at SIGTERM or an interrupt, and then exits: with 0, with 78
// if the configuration is wrong, or with 1 for any other error.
func Main(kinds job.Kinds) {
	workercmd.Main(workercmd.Options{Kinds: kinds, Arguments: os.Args[1:]})
}

// Run runs a worker until ctx is cancelled, or until it was idle for --exit-when-idle;
// then it hands all jobs over, within --drain-budget, and returns nil. It returns an error if the configuration is
// wrong or the worker cannot continue, and never exits the process. Signals are
// left to the caller. With --help or --version it prints and returns nil.
//
// One process can run several workers: they need different values of --instance
// and --listen, as workers of several processes do. Run makes the process
// unreadable for others of its user, on Linux, and so without core dumps: it
// holds access tokens.
func Run(ctx context.Context, o Options) error {
	return workercmd.Run(ctx, workercmd.Options{
		Kinds: o.Kinds, Logger: o.Logger, Registry: o.Registry, Arguments: o.Arguments, Version: o.Version,
	})
}
