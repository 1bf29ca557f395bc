package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/overview/actions"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/text/durations"
)

// putCommand puts one job.
type putCommand struct {
	Kind        string  `help:"Kind of the job: the name of its handler. With a COMMAND: command." placeholder:"KIND" env:"-"`
	ID          string  `name:"id" help:"${about_put_id}" placeholder:"ID" env:"-"`
	Payload     *string `help:"Payload: a JSON value." xor:"payload" placeholder:"JSON" env:"-"`
	PayloadText *string `help:"Payload: a text, unchanged." xor:"payload" placeholder:"TEXT" env:"-"`
	PayloadFile string  `help:"${about_put_payload_file}" xor:"payload" placeholder:"FILE" env:"-"`
	Inputs      string  `help:"${about_put_inputs}" placeholder:"JSON" env:"-"`
	Check       bool    `help:"${about_put_check}" default:"true" negatable:"" env:"-"`
	Deadline    string  `help:"${about_put_deadline}" placeholder:"TIME" env:"-"`

	commandFlags
	Retries *int     `help:"${about_retries}" placeholder:"N" env:"-"`
	Argv    []string `arg:"" optional:"" passthrough:"partial" name:"command" help:"${about_put_command}" env:"-"`
}

// Help is shown by put --help.
func (*putCommand) Help() string {
	return `Examples:

  producer put --kind digest --payload '{"container":"data","blob":"2026/a.tar"}'
  producer put --kind render --id frame-0042 --payload-file scene.bin --deadline 8h --estimate 5h
  producer put --kind render --id frame-0042 --payload-file scene.bin --wait
  producer put --with train.py -- python3 train.py --seed 7
  producer put --kind render --inputs '[{"container":"scenes","blob":"house.blend"},{"container":"scenes","prefix":"textures/"}]'`
}

func (c *putCommand) run(ctx context.Context, s *session) error {
	job, err := c.job(ctx, s)
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
	var failed *client.PutResult
	options := s.options(c.Check || s.flags.TakeOver || s.flags.Again)
	report := options.Report
	options.Report = func(r client.PutResult) error {
		if r.Err == nil {
			return report(r)
		}
		failed = &r
		if s.report.json {
			return report(r)
		}
		return nil
	}
	err = s.put(ctx, deployment, source{jobs: client.Specs(job), total: 1, resumeHint: "it can be put again"}, options)
	switch {
	case failed == nil:
		return err
	case s.flags.DryRun:
		return fmt.Errorf("job %s cannot be enqueued: %w", failed.ID, failed.Err)
	}
	return actions.NotPut(*failed)
}

// job returns the job that the flags describe.
func (c *putCommand) job(ctx context.Context, s *session) (client.Spec, error) {
	job := specOf(s.flags.defaults())
	job.ID, job.Kind = c.ID, c.Kind
	if len(c.Argv) > 0 {
		if err := c.command(&job, c.Argv); err != nil {
			return client.Spec{}, err
		}
	}
	err := c.check(&job)
	if err == nil {
		err = s.checkAgain(c.ID)
	}
	if err != nil {
		return client.Spec{}, err
	}
	if job.Deadline, err = parseDeadline(c.Deadline, time.Now()); err != nil {
		return client.Spec{}, err
	}
	if len(c.Argv) == 0 {
		if job.Payload, err = c.payload(ctx, s.stdin); err != nil {
			return client.Spec{}, err
		}
	}
	if c.Inputs != "" {
		if job.Inputs, err = named.Parse([]byte(c.Inputs)); err != nil {
			return client.Spec{}, fmt.Errorf("--inputs: %w", err)
		}
	}
	if job.Estimate > 0 && job.Deadline.IsZero() {
		s.report.note("--estimate without --deadline moves nothing: spotctl job shows when the job is expected to end")
	}
	return job, job.Validate()
}

// check checks the flags of a command against those of another job, and sets the limit of failures.
func (c *putCommand) check(job *client.Spec) error {
	hasPayload := c.Payload != nil || c.PayloadText != nil || c.PayloadFile != ""
	switch {
	case len(c.Argv) > 0 && c.Argv[0] != "--":
		return fmt.Errorf("unexpected argument %s; a command comes behind --", c.Argv[0])
	case len(c.Argv) > 0 && hasPayload:
		return errors.New("a command is the payload of its job: leave out --payload, --payload-text and --payload-file")
	case len(c.Argv) == 0 && c.isSet():
		return errors.New("--with, --outputs, --gpus and --env are for a command: give it behind --")
	case job.Kind == "":
		return errors.New("--kind is missing: the name of the job's handler, or give a command behind --")
	case c.Retries != nil && *c.Retries < 0:
		return fmt.Errorf("--retries is %d; it must not be negative", *c.Retries)
	case c.Retries != nil:
		job.MaxFailures = *c.Retries + 1
	}
	return nil
}

// payload returns JSON as [json.RawMessage], and anything else as bytes.
func (c *putCommand) payload(ctx context.Context, stdin io.Reader) (any, error) {
	switch {
	case c.Payload != nil:
		if _, err := queue.JSONPayload([]byte(*c.Payload)); err != nil {
			return nil, fmt.Errorf("--%w (--payload-text takes any text)", err)
		}
		return json.RawMessage(*c.Payload), nil
	case c.PayloadText != nil:
		return []byte(*c.PayloadText), nil
	case c.PayloadFile == "-":
		return readPayload("standard input", producer.Interruptible(ctx, stdin))
	case c.PayloadFile != "":
		file, err := os.Open(c.PayloadFile)
		if err != nil {
			return nil, fmt.Errorf("--payload-file: %w", err)
		}
		defer func() { _ = file.Close() }()
		return readPayload(c.PayloadFile, file)
	}
	return nil, nil
}

// readPayload reads a payload, up to one byte more than the limit.
func readPayload(name string, in io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, queue.MaxPayload+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--payload-file: read %s: %w", name, err)
	case len(data) > queue.MaxPayload:
		return nil, fmt.Errorf("--payload-file: %s has more than %d bytes: put the data in a blob and name it in the payload", name,
			queue.MaxPayload)
	}
	return data, nil
}

// parseDeadline reads a time, or a time from now.
func parseDeadline(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if from, err := durations.Parse(s); err == nil && from > 0 {
		return now.Add(from), nil
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, nil
	}
	if _, err := time.Parse("2006-01-02T15:04:05", s); err == nil {
		return time.Time{}, fmt.Errorf("--deadline %s has no zone: add Z for UTC, or an offset such as +01:00", s)
	}
	return time.Time{}, errors.New("--deadline must be a time such as 2026-01-31T09:30:00Z, or a time from now such as 90m")
}
