package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
)

// putCommand puts one job.
type putCommand struct {
	Kind        string  `help:"Kind of the job: the name of its handler." required:"" placeholder:"KIND" env:"-"`
	ID          string  `name:"id" help:"Id of the job and its idempotency key: one outcome for each id, see producer --help. Default: a new UUIDv7." placeholder:"ID" env:"-"`
	Payload     *string `help:"Payload: a JSON value." xor:"payload" placeholder:"JSON" env:"-"`
	PayloadText *string `help:"Payload: a text, unchanged." xor:"payload" placeholder:"TEXT" env:"-"`
	PayloadFile string  `help:"Payload: the bytes of a file, - for standard input. A payload that does not fit into a message is stored in a blob." xor:"payload" placeholder:"FILE" env:"-"`
	Check       bool    `help:"With --id, first read the record of the job, and put nothing if the job has ended. On by default." default:"true" negatable:"" env:"-"`
	Deadline    string  `help:"When the job should be done: a time such as 2026-01-31T09:30:00Z, or a time from now such as 90m. It is passed to the handler and not enforced." placeholder:"TIME" env:"-"`
}

// Help is shown by put --help.
func (*putCommand) Help() string {
	return `Examples:

  producer put --kind digest --payload '{"container":"data","blob":"2026/a.tar"}'
  producer put --kind render --id frame-0042 --payload-file scene.bin --deadline 8h
  producer put --kind render --id frame-0042 --payload-file scene.bin --wait`
}

func (c *putCommand) run(ctx context.Context, s *session) error {
	job, err := c.job(ctx, s)
	if err != nil {
		return &cli.ConfigError{Err: err}
	}
	stores, err := s.open(ctx)
	if err != nil {
		return err
	}
	var failure error
	p := s.producer(stores)
	s.checkIDs(p, c.Check)
	p.Failed = func(bad *producer.JobError) {
		failure = bad.Err
		if s.report.json {
			s.report.failed(bad)
		}
	}
	one := func(yield func(producer.Job, error) bool) { yield(job, nil) }
	err = s.put(ctx, stores, p, source{jobs: one, total: 1, resumeHint: "it can be put again"})
	switch {
	case failure != nil && s.flags.DryRun:
		return fmt.Errorf("job %s cannot be enqueued: %w", job.ID(), failure)
	case errors.Is(failure, checkpoint.ErrOtherWork):
		return fmt.Errorf("job %s was not enqueued; give it another id: %w", job.ID(), failure)
	case failure != nil:
		return fmt.Errorf("job %s may not be enqueued; it can be put again with --id: %w", job.ID(), failure)
	}
	return err
}

// job returns the job that the flags describe.
func (c *putCommand) job(ctx context.Context, s *session) (producer.Job, error) {
	spec := producer.Spec{ID: c.ID, Kind: c.Kind, Terms: s.flags.terms()}
	var err error
	if spec.Deadline, err = parseDeadline(c.Deadline, time.Now()); err != nil {
		return producer.Job{}, err
	}
	if spec.Payload, err = c.payload(ctx, s.stdin); err != nil {
		return producer.Job{}, err
	}
	return producer.NewJob("", spec)
}

func (c *putCommand) payload(ctx context.Context, stdin io.Reader) (queue.Payload, error) {
	switch {
	case c.Payload != nil:
		p, err := queue.JSONPayload([]byte(*c.Payload))
		if err != nil {
			return p, fmt.Errorf("--%w (--payload-text takes any text)", err)
		}
		return p, nil
	case c.PayloadText != nil:
		return queue.BytesPayload([]byte(*c.PayloadText)), nil
	case c.PayloadFile == "-":
		return readPayload("standard input", producer.Interruptible(ctx, stdin))
	case c.PayloadFile != "":
		file, err := os.Open(c.PayloadFile)
		if err != nil {
			return queue.Payload{}, fmt.Errorf("--payload-file: %w", err)
		}
		defer func() { _ = file.Close() }()
		return readPayload(c.PayloadFile, file)
	}
	return queue.Payload{}, nil
}

// readPayload reads a payload, up to one byte more than the limit.
func readPayload(name string, in io.Reader) (queue.Payload, error) {
	data, err := io.ReadAll(io.LimitReader(in, queue.MaxPayload+1))
	switch {
	case err != nil:
		return queue.Payload{}, fmt.Errorf("--payload-file: read %s: %w", name, err)
	case len(data) > queue.MaxPayload:
		return queue.Payload{}, fmt.Errorf("--payload-file: %s has more than %d bytes: put the data in a blob and name it in the payload", name, queue.MaxPayload)
	}
	return queue.BytesPayload(data), nil
}

// parseDeadline reads a time, or a time from now.
func parseDeadline(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if from, err := time.ParseDuration(s); err == nil && from > 0 {
		return now.Add(from), nil
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, nil
	}
	return time.Time{}, errors.New("--deadline must be a time such as 2026-01-31T09:30:00Z, or a time from now such as 90m")
}
