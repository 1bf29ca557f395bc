package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spotworker/spotworker/internal/lab/trial"
)

// tryCommand are the flags of lab try.
type tryCommand struct {
	Command []string `arg:"" optional:"" passthrough:"" help:"${about_try_command}"`

	KindsFile   string            `env:"-" help:"${about_try_kinds_file}" placeholder:"FILE"`
	Kind        string            `env:"-" help:"The kind of the kinds file, where it has several." placeholder:"NAME"`
	Snapshot    bool              `help:"${about_try_snapshot}"`
	Payload     string            `env:"-" help:"Payload of the job." placeholder:"TEXT"`
	PayloadFile string            `env:"-" help:"File with the payload." placeholder:"FILE"`
	Env         map[string]string `env:"-" help:"Variables for the program." placeholder:"NAME=TEXT" mapsep:"none"`
	Every       time.Duration     `help:"${about_try_every}" default:"0s"`
	Evictions   int               `help:"Evictions at most; then the program is left alone until it has ended." default:"6"`
	Timeout     time.Duration     `help:"The trial fails if it takes longer." default:"10m"`
	Grace       time.Duration     `help:"${about_try_grace}" default:"4375ms"`
	Compare     string            `help:"${about_try_compare}" enum:"result,outputs,none" default:"outputs"`
	CompareWith string            `env:"-" help:"${about_try_compare_with}" placeholder:"COMMAND"`
	Keep        bool              `help:"Keep the workers' logs and the kinds file."`

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
	config := c.config()
	story := stdout
	if c.json {
		story = os.Stderr
	}
	report, err := trial.Run(ctx, config, story)
	if wrong, ok := errors.AsType[*trial.ConfigError](err); ok {
		return configError(wrong.Err)
	}
	if c.json && report.Version > 0 {
		err = errors.Join(err, printJSON(stdout, report))
	}
	return err
}

func (c *tryCommand) config() trial.Config {
	return trial.Config{
		Command: c.Command, KindsFile: c.KindsFile, Kind: c.Kind, Snapshot: c.Snapshot, Environment: c.Env,
		Payload: c.Payload, PayloadFile: c.PayloadFile, Every: c.Every, Evictions: c.Evictions, Timeout: c.Timeout,
		Grace: c.Grace, Compare: trial.Compare(c.Compare), CompareWith: c.CompareWith, Keep: c.Keep,
	}
}
