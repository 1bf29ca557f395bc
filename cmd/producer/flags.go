package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
)

// flags are the producer's settings. What describes jobs or a single run is never
// read from the environment: a job's own environment has variables of such names.
type flags struct {
	Version kong.VersionFlag `help:"Print the version and exit." env:"-"`

	Delay      time.Duration `help:"Time before a worker may start a job, up to 168h." default:"0s" group:"Jobs" env:"-"`
	MaxRun     time.Duration `help:"Most time that a job may run, over all attempts and workers; more ends it in the poison queue. 0s is no limit but its kind's." default:"0s" group:"Jobs" env:"-"`
	MaxSilence time.Duration `help:"Most time that a job may run without a report of its handler; more is a failure. 0s is no limit but its kind's." default:"0s" group:"Jobs" env:"-"`
	OnDemand   bool          `help:"Put the jobs on the on-demand queue, for VMs of regular priority: they start no sooner, but are not evicted." group:"Jobs" env:"-"`
	TakeOver   bool          `help:"Let jobs that are recorded as running be started anew at once: their worker is known to be dead." group:"Jobs" env:"-"`
	DryRun     bool          `help:"Read and check everything, say what would be enqueued, and write nothing." group:"Jobs" env:"-"`

	Wait        bool          `help:"Wait for the jobs to end, and print their results." group:"Results" env:"-"`
	WaitTimeout time.Duration `help:"Longest time to wait; 0s is without end." default:"0s" group:"Results" env:"-"`
	JSON        bool          `name:"json" help:"Print one JSON object per line, for scripts." group:"Results" env:"-"`
	Quiet       bool          `short:"q" help:"No progress, no summary; only what goes wrong." group:"Results" env:"-"`

	cli.Storage

	Parallel int `help:"Jobs put at once, 1 to ${max_parallel}." default:"16" group:"Storage"`

	Put     putCommand     `cmd:"" help:"Put one job, described by flags."`
	Lines   linesCommand   `cmd:"" help:"Put the jobs of a file or of standard input, one JSON object per line."`
	Digests digestsCommand `cmd:"" help:"Put a digest job for each blob of a container."`

	command command
}

// command is one of the producer's commands.
type command interface {
	run(ctx context.Context, s *session) error
}

// maxParallel keeps a typing mistake from opening thousands of connections.
const maxParallel = 256

// AfterApply is called by kong when all flags are set. It notes which command
// was chosen.
func (f *flags) AfterApply(ctx *kong.Context) (err error) {
	f.command, err = cli.Chosen[command](ctx)
	return err
}

// terms are what the flags say about every job.
func (f *flags) terms() producer.Terms {
	return producer.Terms{Delay: f.Delay, MaxRun: f.MaxRun, MaxSilence: f.MaxSilence}
}

func (f *flags) check() error {
	var err error
	switch {
	case f.Parallel < 1 || f.Parallel > maxParallel:
		err = fmt.Errorf("--parallel is %d; it must be 1 to %d", f.Parallel, maxParallel)
	case f.Delay < 0 || f.Delay > queue.MaxDelay:
		err = fmt.Errorf("--delay is %s; it must be 0s to %s", f.Delay, queue.MaxDelay)
	case queue.CheckLimit(f.MaxRun) != nil:
		err = fmt.Errorf("--max-run: %w", queue.CheckLimit(f.MaxRun))
	case queue.CheckLimit(f.MaxSilence) != nil:
		err = fmt.Errorf("--max-silence: %w", queue.CheckLimit(f.MaxSilence))
	case f.DryRun && f.Wait:
		err = errors.New("--dry-run enqueues nothing that --wait could wait for: leave one of them out")
	case f.WaitTimeout < 0:
		err = fmt.Errorf("--wait-timeout is %s; it must not be negative", f.WaitTimeout)
	case f.WaitTimeout > 0 && !f.Wait:
		err = errors.New("--wait-timeout needs --wait")
	}
	if err != nil {
		return &cli.ConfigError{Err: err}
	}
	return nil
}
