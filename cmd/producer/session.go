package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli/clientflags"
	"github.com/spotworker/spotworker/internal/producer"
)

// session is the context of a command: its flags, input and output.
type session struct {
	report *report
	flags  *flags
	stdin  io.Reader
}

// errNothingYet means an interruption before the first job.
var errNothingYet = errors.New("interrupted; nothing was enqueued")

// source is the sequence of a command's jobs.
type source struct {
	jobs iter.Seq2[client.Spec, error]

	// total is the number of jobs, -1 if unknown.
	total int64

	// resumeHint tells people how to run the command again after an interruption.
	resumeHint string
}

// specs yields the jobs of an input as package client takes them.
func specs(jobs iter.Seq2[producer.Spec, error]) iter.Seq2[client.Spec, error] {
	return func(yield func(client.Spec, error) bool) {
		for job, err := range jobs {
			if !yield(specOf(job), err) {
				return
			}
		}
	}
}

func specOf(s producer.Spec) client.Spec {
	return client.Spec{
		Where: s.Where, ID: s.ID, Kind: s.Kind, Payload: s.Payload, Inputs: s.Inputs, Delay: s.Delay, Deadline: s.Deadline,
		MaxRun: s.MaxRun, MaxSilence: s.MaxSilence, MaxFailures: s.MaxFailures, Estimate: s.Estimate, OnDemand: s.OnDemand, Urgent: s.Urgent,
		Group: s.Group,
	}
}

// open connects to the storage account and creates missing queues and containers.
func (s *session) open(ctx context.Context) (*client.Client, error) {
	s.flags.Shards = s.flags.QueueShards
	c, err := clientflags.Open(&s.flags.Storage, s.flags.Parallel, version, name())
	if err != nil {
		return nil, err
	}
	if s.flags.DryRun {
		err = s.checkAccess(ctx, c)
	} else {
		err = c.Create(ctx)
	}
	if ctx.Err() != nil {
		return nil, errNothingYet
	}
	return c, err
}

// checkAccess checks whether the account can be used, without writing. An identity may
// be allowed to put messages and not to count them.
func (s *session) checkAccess(ctx context.Context, c *client.Client) error {
	queues, err := c.Queues(ctx)
	if denied, ok := errors.AsType[*client.DeniedError](err); ok && denied.Role != "" {
		return nil
	}
	if err != nil {
		return err
	}
	q := queues.Jobs
	switch {
	case s.flags.OnDemand:
		q = queues.OnDemand
	case s.flags.Urgent:
		q = queues.First
	}
	if !q.Exists {
		s.report.note("queue %s does not exist yet; it would be created", q.Name)
	}
	return nil
}

// options returns the settings of a run that reports to the session. With check it reads
// the records of jobs that have an id of their own.
func (s *session) options(check bool) client.PutOptions {
	if check {
		s.report.sum.Found = &found{}
	}
	return client.PutOptions{
		NoCheck: !check, TakeOver: s.flags.TakeOver, Again: s.flags.Again, DryRun: s.flags.DryRun,
		Report: s.report.put, Unchecked: s.report.unchecked, UnknownKind: s.report.unknownKind, KnownKinds: s.flags.KnownKinds,
	}
}

// checkAgain returns an error if --again is given without the id of a job.
func (s *session) checkAgain(id string) error {
	if s.flags.Again && id == "" {
		return errors.New("--again runs the job of an id again: give its --id")
	}
	return nil
}

// name is recorded as the last writer of records that are reopened.
func name() string {
	host, err := os.Hostname()
	if err != nil {
		return "producer"
	}
	return "producer@" + host
}

// put puts the jobs and reports the result. With --wait it waits for the jobs that
// were put or existed before.
func (s *session) put(ctx context.Context, c *client.Client, jobs source, o client.PutOptions) error {
	w := &waiting{session: s, client: c}
	if s.flags.Wait {
		o.Report = w.add(o.Report)
	}
	began := time.Now()
	s.report.screen.begin("enqueueing", jobs.total)
	sum, err := c.PutMany(ctx, jobs.jobs, o)
	s.report.screen.end()
	s.report.sum.Enqueued, s.report.sum.Skipped, s.report.sum.Failed, s.report.sum.Last = sum.Put, sum.Skipped, sum.Failed, sum.Last
	s.report.note("%s %s%s, %d skipped%s, %d failed, in %v: %s", s.countText(sum.Put), s.queueName(), s.report.lateText(), sum.Skipped,
		s.report.sum.Found.text(), sum.Failed,
		time.Since(began).Round(time.Millisecond), s.flags.Where())
	place := "before the first job"
	if sum.Last != "" {
		place = "after " + sum.Last
	}
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return fmt.Errorf("interrupted %s; %s", place, jobs.resumeHint)
	case err != nil:
		return fmt.Errorf("stopped %s: %w; %s", place, err, jobs.resumeHint)
	case sum.Failed > 0:
		err = fmt.Errorf("%d of %d jobs %s; the lines above say why", sum.Failed, sum.Put+sum.Skipped+sum.Failed, s.failureText())
	}
	if n := s.report.sum.Found.withoutResult(); n > 0 && !s.flags.Wait {
		err = both(err, fmt.Errorf("%d jobs ended without a result before and were not put: replay those in the poison queue (spotctl poison "+
			"replay), or run them from scratch with --again", n))
	}
	if s.flags.Wait {
		err = both(err, w.run(ctx))
	}
	return err
}

// queueName returns the name of the queue for the jobs.
func (s *session) queueName() string {
	names := s.flags.Names()
	switch {
	case s.flags.OnDemand:
		return names.OnDemand
	case s.flags.Urgent:
		return names.First
	}
	return names.Queue
}

// countText returns how many jobs are, or would be, enqueued.
func (s *session) countText(n int) string {
	if s.flags.DryRun {
		return fmt.Sprintf("dry run: %d would be enqueued on", n)
	}
	return fmt.Sprintf("%d enqueued on", n)
}

// failureText returns the meaning of a job's failure.
func (s *session) failureText() string {
	if s.flags.DryRun {
		return "cannot be enqueued"
	}
	return "are not confirmed to be on the queue"
}

// both joins two errors to one sentence.
func both(first, second error) error {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return fmt.Errorf("%w; %w", first, second)
}
