// Command noop is the worker that make bench measures: its jobs do nothing, so that
// what remains is the worker's own work.
package main

import (
	"context"
	"os"

	"github.com/spotworker/spotworker"
	"github.com/spotworker/spotworker/bench/probe"
	"github.com/spotworker/spotworker/job"
)

func main() {
	go probe.Serve(os.Stdin, os.Stdout)
	spotworker.Main(job.Kinds{"noop": noop{idempotent: os.Getenv("BENCH_IDEMPOTENT") == "true"}})
}

// noop is the handler. Its methods, not functions of package job, say what it is, so
// that it compiles with older versions of that package too.
type noop struct{ idempotent bool }

// Run implements [job.Handler].
func (noop) Run(context.Context, *job.Job) ([]byte, error) { return nil, nil }

// Idempotent says whether its jobs may end without a record.
func (n noop) Idempotent() bool { return n.idempotent }
