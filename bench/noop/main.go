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
	spotworker.Main(job.Kinds{"noop": job.HandlerFunc(noop)})
}

func noop(context.Context, *job.Job) ([]byte, error) { return nil, nil }
