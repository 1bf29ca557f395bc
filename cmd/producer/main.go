// Command producer puts jobs on an Azure Storage queue.
// Run it with --help for its commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/cli/manual"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/telemetry/tracing/otlp"
)

// version is set by the linker, otherwise by main.
var version = cli.Devel

const description = `Puts jobs on an Azure Storage queue, for workers to do.

The id of each job is printed, one per line, once the service has confirmed
that the job is on the queue; from then on it cannot be lost. Errors and a
summary go to standard error. Missing queues and containers are created.

A job's id is its idempotency key: each id has one outcome. Its handler may run
more than once. Work since the last checkpoint is repeated after a crash or a
lost message; a worker that was cut off continues until it learns of its
successor; and two messages of one generated id (storage repeats a put whose
reply was lost) may run at the same time until the first save of one is refused.
The record of an id of your own is read first: no handler starts while another
worker has the job, or after the job has ended, for as long as its record is
kept. So after an interruption the same input can be put again, if the ids are
its own.

Put and lines read the record of each given id before they put its job
(--no-check does not). A job that has ended is skipped; with --again it runs
once more, from scratch. One that is waiting or running gets one more message,
which resumes it if the earlier one was lost. An id that stands for other work
fails.

With --wait the program waits until the jobs have ended, including those that
were put or done before. Each result is printed when it is available: the id, a
tab, and the result unchanged. Ctrl-C ends the waiting, not the jobs.

With --json standard output has one object per line: one when a job is enqueued,
skipped or failed, another when it is done, poison or cancelled, and finally a
summary. A result that is JSON is included unchanged, text as a string, and other
bytes as result_base64:

  {"id":"a","status":"enqueued","where":"line 1"}
  {"id":"a","status":"done","result":{"sha256":"9f86d081884c7d65…"}}
  {"summary":{"enqueued":1,"skipped":0,"failed":0,"waited":{"done":1,…},…}}

A new message takes over a job whose worker died only after an hour, since that
worker might be alive. Use --take-over when it is known to be dead: it reopens
the job's record, so that the new message takes effect at once, and skips jobs
that are done, poison or cancelled. A worker that is alive after all loses what
it has not saved.

Flags for storage can also be set in the environment, as SPOTWORKER_ and the
flag's name (--prefix is SPOTWORKER_PREFIX). The storage account is
AZURE_STORAGE_CONNECTION_STRING, or --account with AZURE_CLIENT_ID.

Run waits for its command, prints its standard output and ends with its exit
code: see producer run --help.

Exit codes: 0 all jobs are on the queue or were done before, and with --wait are
done; 78 wrong flags or configuration; 1 anything else, such as an id whose job
is poison or cancelled.`

func main() {
	version = cli.Version(version)
	cli.Exit("producer", run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// traceFlush bounds how long the spans of jobs that were put are sent before it exits.
const traceFlush = 5 * time.Second

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	var f flags
	program := cli.Program{
		Name: "producer", Description: description, Version: version,
		Vars: map[string]string{"max_parallel": strconv.Itoa(maxParallel)},
	}
	done, err := program.Parse(&f, args, stdout)
	if done || err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	r := newReport(&f, newScreen(stdout, stderr, !f.Quiet))
	traces, err := otlp.Start(otlp.Config{Service: "spotworker-producer", Version: version, Env: os.Getenv,
		Log: slog.New(slog.NewTextHandler(stderr, nil))})
	if err != nil {
		return &cli.ConfigError{Err: err}
	}
	if traces != nil {
		f.TracerProvider = traces.Provider()
		defer traces.Close(traceFlush)
	}
	return r.finish(f.command.run(ctx, &session{report: r, flags: &f, stdin: stdin}))
}

// flags are the producer's settings. Settings of jobs or of a single run are never
// read from the environment: a job's own environment has variables of such names.
type flags struct {
	Version kong.VersionFlag `help:"Print the version and exit." env:"-"`

	Delay      time.Duration `help:"Time before a worker may start a job, up to 168h." default:"0s" group:"Jobs" env:"-"`
	MaxRun     time.Duration `help:"${about_max_run}" default:"0s" group:"Jobs" env:"-"`
	MaxSilence time.Duration `help:"${about_max_silence}" default:"0s" group:"Jobs" env:"-"`
	Estimate   time.Duration `help:"${about_estimate}" default:"0s" group:"Jobs" env:"-"`
	Group      string        `help:"${about_group}" group:"Jobs" placeholder:"NAME" env:"-"`
	OnDemand   bool          `help:"${about_on_demand}" group:"Jobs" env:"-"`
	Urgent     bool          `help:"${about_urgent}" group:"Jobs" env:"-"`
	TakeOver   bool          `help:"${about_take_over}" group:"Jobs" env:"-"`
	Again      bool          `help:"${about_again}" group:"Jobs" env:"-"`
	KnownKinds bool          `help:"${about_known_kinds}" group:"Jobs" env:"-"`
	DryRun     bool          `help:"Read and check everything, print what would be enqueued, and write nothing." group:"Jobs" env:"-"`

	Wait        bool          `help:"Wait for the jobs to end, and print their results." group:"Results" env:"-"`
	WaitTimeout time.Duration `help:"Longest time to wait; 0s is no limit." default:"0s" group:"Results" env:"-"`
	Quiet       bool          `short:"q" help:"No progress, no summary; only errors." group:"Results" env:"-"`

	cli.Format
	cli.Storage

	Parallel    int `help:"Jobs put at once, 1 to ${max_parallel}; 0 adapts to the storage." default:"0" group:"Storage"`
	QueueShards int `help:"${about_queue_shards}" default:"0" group:"Storage" placeholder:"N"`

	Run     runCommand     `cmd:"" help:"Run a command on a worker, and print what it prints."`
	Put     putCommand     `cmd:"" help:"Put one job, described by flags."`
	Lines   linesCommand   `cmd:"" help:"Put the jobs of a file or of standard input, one JSON object per line."`
	Digests digestsCommand `cmd:"" help:"Put a digest job for each blob of a container."`

	Man manCommand `cmd:"" help:"Print the manual page of producer."`

	command action
}

// manCommand prints the manual page.
type manCommand struct{ manual.Command }

func (c *manCommand) run(context.Context, *session) error { return c.Print() }

// action is one of the producer's commands.
type action interface {
	run(ctx context.Context, s *session) error
}

// maxParallel prevents a typing error from opening thousands of connections.
const maxParallel = 256

// AfterApply records the chosen command. It is called by kong when all flags are set.
func (f *flags) AfterApply(ctx *kong.Context) (err error) {
	f.command, err = cli.Chosen[action](ctx)
	return err
}

// defaults returns the settings of the flags for every job.
func (f *flags) defaults() producer.Spec {
	return producer.Spec{OnDemand: f.OnDemand, Urgent: f.Urgent, Group: f.Group,
		Terms: producer.Terms{Delay: f.Delay, MaxRun: f.MaxRun, MaxSilence: f.MaxSilence, Estimate: f.Estimate}}
}

// isShards reports whether there can be so many queues of jobs; 0 means as many as there
// are.
func isShards(n int) bool { return n >= 0 && n <= queue.MaxShards }

// checkJobs checks the settings of jobs.
func (f *flags) checkJobs() error {
	if err := queue.CheckLimit(f.MaxRun); err != nil {
		return fmt.Errorf("--max-run: %w", err)
	}
	if err := queue.CheckEstimate(f.Estimate); err != nil {
		return fmt.Errorf("--estimate: %w", err)
	}
	if err := queue.CheckLimit(f.MaxSilence); err != nil {
		return fmt.Errorf("--max-silence: %w", err)
	}
	if f.Group == "" {
		return nil
	}
	if err := jobid.ValidateGroup(f.Group); err != nil {
		return fmt.Errorf("--%w", err)
	}
	return nil
}

func (f *flags) check() error { //nolint:cyclop // a table of cases
	var err error
	switch {
	case f.Parallel < 0 || f.Parallel > maxParallel:
		err = fmt.Errorf("--parallel is %d; it must be 0 to %d", f.Parallel, maxParallel)
	case !isShards(f.QueueShards):
		err = fmt.Errorf("--queue-shards is %d; it must be 1 to %d, or 0 for as many as the deployment says", f.QueueShards, queue.MaxShards)
	case f.Delay < 0 || f.Delay > queue.MaxDelay:
		err = fmt.Errorf("--delay is %s; it must be 0s to %s", f.Delay, queue.MaxDelay)
	case f.OnDemand && f.Urgent:
		err = errors.New("--on-demand and --urgent name two queues: leave one of them out")
	case f.checkJobs() != nil:
		err = f.checkJobs()
	case f.Again && f.TakeOver:
		err = errors.New("--again is for jobs that have ended, --take-over for running ones: leave one of them out")
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
