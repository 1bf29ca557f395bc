// Command noop is the worker that make bench measures: its jobs do nothing, or report a
// state and wait, so that what remains is the worker's own work.
package main

import (
	"bytes"
	"context"

	"github.com/spotworker/spotworker"
	"github.com/spotworker/spotworker/job"
)

func main() {
	spotworker.Main(job.Kinds{"noop": job.HandlerFunc(noop), "wait": job.HandlerFunc(wait)})
}

// wait reports a state of 100 bytes and waits until it is stopped.
func wait(ctx context.Context, j *job.Job) ([]byte, error) {
	j.Report(job.Progress{State: bytes.Repeat([]byte("x"), 100), Fraction: 0.5})
	<-ctx.Done()
	return nil, ctx.Err()
}

func noop(context.Context, *job.Job) ([]byte, error) { return nil, nil }
