package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview/actions"
	"github.com/spotworker/spotworker/internal/program/command"
	"github.com/spotworker/spotworker/internal/program/ownfiles"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// commandFlags describe a command beside its arguments.
type commandFlags struct {
	With    []string `help:"${about_with}" sep:"none" placeholder:"PATH[=NAME]" env:"-"`
	Outputs []string `help:"${about_run_outputs}" sep:"none" placeholder:"PATTERN" env:"-"`
	GPUs    *int     `name:"gpus" help:"${about_gpus}" placeholder:"N" env:"-"`
	Set     []string `name:"env" help:"${about_set}" sep:"none" placeholder:"NAME=TEXT" env:"-"`
}

func (f *commandFlags) isSet() bool {
	return len(f.With)+len(f.Outputs)+len(f.Set) > 0 || f.GPUs != nil
}

// command makes a job one of a command, without the files that it needs.
func (f *commandFlags) command(job *client.Spec, argv []string) error {
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	c := command.Command{Argv: argv, Outputs: f.Outputs, GPUs: f.GPUs, Environment: map[string]string{}}
	for _, variable := range f.Set {
		name, text, ok := strings.Cut(variable, "=")
		if !ok {
			return fmt.Errorf("--env %s: give NAME=TEXT", name)
		}
		c.Environment[name] = text
	}
	for _, pattern := range f.Outputs {
		if err := ownfiles.CheckPattern(pattern); err != nil {
			return fmt.Errorf("--outputs: %w", err)
		}
	}
	if job.Payload = c; job.Kind == "" {
		job.Kind = command.Kind
	}
	return c.Check()
}

// slowAttach is how long files are sent without a word.
const slowAttach = 2 * time.Second

// attach uploads the files that the command needs.
func (f *commandFlags) attach(ctx context.Context, c *client.Client, job *client.Spec, report *report) error {
	if report.dryRun {
		return nil
	}
	for _, with := range f.With {
		path, name, _ := strings.Cut(with, "=")
		slow := time.AfterFunc(slowAttach, func() { report.note("reading and storing --with %s; what is stored is not sent again", with) })
		err := c.Attach(ctx, job, path, name)
		slow.Stop()
		if err != nil {
			if ctx.Err() != nil {
				return errNothingYet
			}
			return fmt.Errorf("--with %s: %w", with, err)
		}
	}
	return nil
}

// runCommand runs a command on a worker.
type runCommand struct {
	Kind    string `help:"${about_run_kind}" default:"command" placeholder:"KIND" env:"-"`
	ID      string `name:"id" help:"${about_run_id}" placeholder:"ID" env:"-"`
	Fetch   string `help:"${about_run_fetch}" placeholder:"FOLDER" env:"-"`
	Retries int    `help:"${about_run_retries}" default:"0" env:"-"`
	Detach  bool   `help:"${about_run_detach}" env:"-"`
	commandFlags

	Argv []string `arg:"" passthrough:"partial" name:"command" help:"Program and arguments." env:"-"`
}

// Exit codes of run that are not the command's.
const (
	exitLost      = 125 // the job ended without an exit code of its command, or something else failed
	exitCancelled = 130 // as a shell has it for Ctrl-C
)

// Help is shown by run --help.
func (*runCommand) Help() string {
	return `Runs a command on a worker that has --commands, wherever that is, as if it ran here:

  producer run -- sh -c 'echo hello from $SPOTWORKER_JOB_ID'
  producer run --with train.py --with data/ --fetch out/ -- python3 train.py --epochs 3
  seq 100 | xargs -P 50 -I{} producer run --with sim.py -- python3 sim.py --seed {}

Its standard output is printed when it has ended, byte for byte, and on a terminal also while it runs.
Its log, which is its standard error, is printed meanwhile, as far as the worker reports it. An
eviction does not end it: it resumes from its checkpoint (docs/jobs.md), or starts again without one.
Its standard input is empty: give it data as files, with --with.

Ctrl-C cancels the command and waits for that; a second Ctrl-C leaves it alone. The files of --with are
stored once for all commands.

Exit codes: that of the command, 128 and its number after a signal; 126 and 127 if the worker cannot
start it; 130 cancelled; 78 wrong flags; 125 anything else: a job over a limit, a missing file of --with,
a storage that does not answer.`
}

func (c *runCommand) run(ctx context.Context, s *session) error {
	err := c.runJob(ctx, s)
	_, isConfig := errors.AsType[*cli.ConfigError](err)
	if _, hasCode := errors.AsType[*cli.StatusError](err); err == nil || isConfig || hasCode {
		return err
	}
	return &cli.StatusError{Code: exitLost, Err: err}
}

func (c *runCommand) runJob(ctx context.Context, s *session) error {
	job, err := c.job(s)
	if err != nil {
		return &cli.ConfigError{Err: err}
	}
	deployment, err := s.open(ctx)
	if err != nil {
		return err
	}
	if err := c.attach(ctx, deployment, &job, s.report); err != nil {
		return err
	}
	var put client.PutResult
	options := s.options(true)
	var unknown error
	options.UnknownKind = func(err error) { unknown = err }
	options.Report = func(r client.PutResult) error { put = r; return nil }
	_, err = deployment.PutMany(ctx, client.Specs(job), options)
	switch {
	case put.Err != nil:
		return actions.NotPut(put)
	case err != nil && put.ID == "":
		if ctx.Err() != nil {
			return errNothingYet
		}
		return err
	case c.Detach:
		if unknown != nil {
			s.report.unknownKind(unknown)
		}
		return s.report.screen.printOut(put.ID + "\n")
	}
	f := &following{report: s.report, client: deployment, put: put, unknown: unknown}
	ended, err := f.follow(ctx)
	if err != nil {
		return err
	}
	return c.conclude(context.WithoutCancel(ctx), f, ended)
}

// job returns the job that the flags describe.
func (c *runCommand) job(s *session) (client.Spec, error) {
	job := specOf(s.flags.defaults())
	job.ID, job.Kind, job.MaxFailures = c.ID, c.Kind, c.Retries+1
	switch {
	case c.Retries < 0:
		return job, fmt.Errorf("--retries is %d; it must not be negative", c.Retries)
	case s.flags.DryRun:
		return job, errors.New("--dry-run runs nothing: use producer put --dry-run -- COMMAND")
	case s.report.json:
		return job, errors.New("run prints what its command prints: use --json with producer put -- COMMAND")
	case c.Detach && c.Fetch != "":
		return job, errors.New("--detach does not wait for outputs that --fetch could download: leave one of them out")
	}
	if err := s.checkAgain(c.ID); err != nil {
		return job, err
	}
	if err := c.command(&job, c.Argv); err != nil {
		return job, err
	}
	return job, job.Validate()
}

// conclude downloads the outputs of a command that has ended, and returns its exit code.
func (c *runCommand) conclude(ctx context.Context, f *following, ended client.Outcome) error {
	if err := c.fetch(ctx, f, ended); err != nil {
		return err
	}
	over, ok := errors.AsType[*client.EndedError](ended.Err)
	code, hasCode := 0, false
	if ok {
		code, hasCode = command.ExitCode(over.Job.Reason)
	}
	switch {
	case ended.Err == nil:
		return nil
	case !ok:
		return ended.Err
	case over.Job.Status == client.StatusCancelled:
		return &cli.StatusError{Code: exitCancelled, Err: fmt.Errorf("job %s was cancelled: %s", f.put.ID, plaintext.Line(reason(over)))}
	case !hasCode:
		return &cli.StatusError{Code: exitLost, Err: fmt.Errorf("job %s is poison: %s", f.put.ID, plaintext.Line(reason(over)))}
	}
	text, _, _ := strings.Cut(reason(over), "; the end of its standard error:") // which is printed
	f.report.note("job %s: %s", f.put.ID, text)
	return &cli.StatusError{Code: code}
}

// fetch downloads the outputs of a command that has ended, if they are asked for.
func (c *runCommand) fetch(ctx context.Context, f *following, ended client.Outcome) error {
	if c.Fetch == "" {
		return nil
	}
	fetched := 0
	if ended.Job.OutputFiles > 0 {
		selected := func(o client.Output) bool { return o.Path != command.Stdout }
		var err error
		if fetched, err = f.client.Download(ctx, f.put.ID, c.Fetch, client.DownloadOptions{Select: selected}); err != nil {
			return fmt.Errorf("job %s has ended, and its outputs cannot be fetched: %w; spotctl outputs repeats that", f.put.ID, err)
		}
	}
	if fetched == 0 && ended.Err == nil {
		f.report.note("job %s has left no outputs to fetch", f.put.ID)
	}
	return nil
}

// cancelTimeout bounds the cancel after Ctrl-C.
const cancelTimeout = time.Minute

// cancel cancels the job. A job that a worker has just claimed may have no record yet, and its
// message is not seen.
func (f *following) cancel(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	f.report.note("cancelling job %s; Ctrl-C again leaves it alone", f.put.ID)
	for {
		var result client.ActionResult
		why := client.CancelOptions{Reason: "Ctrl-C in producer run"}
		err := f.client.Cancel(ctx, []string{f.put.ID}, why, func(r client.ActionResult) error { result = r; return nil })
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("job %s is not cancelled within %s: repeat it with spotctl cancel %s", f.put.ID, cancelTimeout, f.put.ID)
		case err != nil:
			return fmt.Errorf("job %s is not cancelled: %w", f.put.ID, err)
		case result.Action != client.Unknown && result.Action != client.Failed:
			return nil
		}
		select {
		case <-time.After(pollLog):
		case <-ctx.Done():
		}
	}
}
