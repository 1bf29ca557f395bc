package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spotworker/spotworker/internal/lab/trial"
)

// tryCommand are the flags of lab try.
type tryCommand struct {
	trial.Config

	json bool
}

// useJSON implements [inJSON].
func (c *tryCommand) useJSON() { c.json = true }

// Help is shown by try --help.
func (*tryCommand) Help() string {
	return `The program runs as a job, twice undisturbed, and then evicted every few seconds: with
notice, without one, in the middle of writing a checkpoint, and cut off just after the stop.
docs/jobs.md has what a program does to be interruptible.

    lab try ./train.py --epochs 3
    lab try --payload '{"file": "a.log"}' python3 stats.py
    lab try --kinds-file kinds.json --payload-file list
    lab try --snapshot sh -c './solver >out'    unchanged: CRIU freezes it (docs/jobs.md)

With --json the report is on standard output, and the story on standard error. Flags of lab try come
before the program. Exit codes: 0 the program is interruptible; 1 it is not,
with the reason; 78 wrong usage.`
}

func (c *tryCommand) run(ctx context.Context, stdout io.Writer) error {
	story := stdout
	if c.json {
		story = os.Stderr
	}
	report, err := trial.Run(ctx, c.Config, story)
	if wrong, ok := errors.AsType[*trial.ConfigError](err); ok {
		return configError(wrong.Err)
	}
	if c.json && report.Version > 0 {
		err = errors.Join(err, printJSON(stdout, report))
	}
	return err
}
