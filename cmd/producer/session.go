package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
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
	jobs iter.Seq2[producer.Job, error]

	// total is the number of jobs, -1 if unknown.
	total int64

	// resumeHint tells people how to run the command again after an interruption.
	resumeHint string
}

// open connects to the storage account and creates missing queues and containers.
func (s *session) open(ctx context.Context) (*deployment.Stores, error) {
	stores, err := s.flags.Open(s.flags.Parallel, version)
	if err != nil {
		return nil, err
	}
	if s.flags.DryRun {
		err = s.checkAccess(ctx, stores)
	} else {
		err = create(ctx, stores)
	}
	if ctx.Err() != nil {
		return nil, errNothingYet
	}
	return stores, err
}

func create(ctx context.Context, stores *deployment.Stores) error {
	containers := map[string]*container.Client{}
	for _, name := range []string{stores.Names.Records, stores.Names.Payloads, stores.Names.Workers, stores.Names.Control} {
		containers[name] = stores.Account.Container(name)
	}
	return producer.Create(ctx, []*queue.Queue{stores.Queue, stores.OnDemand, stores.Poison}, containers)
}

// checkAccess checks whether the account can be used, without writing.
func (s *session) checkAccess(ctx context.Context, stores *deployment.Stores) error {
	q := s.queue(stores)
	exists, err := producer.QueueExists(ctx, q)
	if err == nil && !exists {
		s.report.note("queue %s does not exist yet; it would be created", q.Name())
	}
	return err
}

// queue returns the queue for the jobs.
func (s *session) queue(stores *deployment.Stores) *queue.Queue {
	if s.flags.OnDemand {
		return stores.OnDemand
	}
	return stores.Queue
}

// producer returns a producer that reports to the session.
func (s *session) producer(stores *deployment.Stores) *producer.Producer {
	return &producer.Producer{
		Queue: s.queue(stores), Payloads: stores.Payloads, Records: stores.Records,
		Parallel: s.flags.Parallel, TakeOver: s.flags.TakeOver, DryRun: s.flags.DryRun, Name: name(),
		Confirmed: s.report.enqueued, Skipped: s.report.skipped, Failed: s.report.failed, Unchecked: s.report.unchecked,
	}
}

// checkIDs makes p read the records of jobs that have an id, if check is set.
func (s *session) checkIDs(p *producer.Producer, check bool) {
	if check || s.flags.TakeOver {
		p.CheckIDs, s.report.sum.Found = true, &found{}
	}
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
func (s *session) put(ctx context.Context, stores *deployment.Stores, p *producer.Producer, jobs source) error {
	var w *producer.Waiter
	if s.flags.Wait {
		w = s.waiter(stores, p)
	}
	began := time.Now()
	s.report.screen.begin("enqueueing", jobs.total)
	sum, err := p.Run(ctx, jobs.jobs)
	s.report.screen.end()
	s.report.sum.Enqueued, s.report.sum.Skipped, s.report.sum.Failed, s.report.sum.Last = sum.Enqueued, sum.Skipped, sum.Failed, sum.Last
	s.report.note("%s %s, %d skipped%s, %d failed, in %v", s.countText(sum.Enqueued), p.Queue.Name(), sum.Skipped, s.report.sum.Found.text(), sum.Failed,
		time.Since(began).Round(time.Millisecond))
	place := "before the first job"
	if sum.Last != "" {
		place = "after " + sum.Last
	}
	switch {
	case errors.Is(err, producer.ErrInterrupted):
		return fmt.Errorf("interrupted %s; %s", place, jobs.resumeHint)
	case err != nil:
		return fmt.Errorf("stopped %s: %w; %s", place, err, jobs.resumeHint)
	case sum.Failed > 0:
		err = fmt.Errorf("%d of %d jobs %s; the lines above say why", sum.Failed, sum.Enqueued+sum.Skipped+sum.Failed, s.failureText())
	}
	if n := s.report.sum.Found.withoutResult(); n > 0 && w == nil {
		err = both(err, fmt.Errorf("%d jobs ended without a result before and were not put: replay those in the poison queue (spotctl poison replay), or put them under another id", n))
	}
	if w != nil {
		err = both(err, s.wait(ctx, w))
	}
	return err
}

// countText returns how many jobs are, or would be, enqueued.
func (s *session) countText(n int) string {
	if s.flags.DryRun {
		return fmt.Sprintf("dry run: %d would be enqueued on", n)
	}
	return fmt.Sprintf("%d enqueued on", n)
}

// failureText returns what the failure of a job means.
func (s *session) failureText() string {
	if s.flags.DryRun {
		return "cannot be enqueued"
	}
	return "are not confirmed to be on the queue"
}

// errWaitTimeout ends the waiting after --wait-timeout.
var errWaitTimeout = errors.New("the waiting timed out")

// waiter returns a waiter for what p enqueues or skips.
func (s *session) waiter(stores *deployment.Stores, p *producer.Producer) *producer.Waiter {
	w := &producer.Waiter{Records: stores.Records, Parallel: s.flags.Parallel, Ended: s.report.ended}
	enqueued, skipped := p.Confirmed, p.Skipped
	p.Confirmed = func(j producer.Job, found checkpoint.Status) error {
		w.Add(j)
		return enqueued(j, found)
	}
	p.Skipped = func(j producer.Job, found checkpoint.Status) error {
		w.Add(j)
		return skipped(j, found)
	}
	return w
}

// wait waits until all jobs have ended, and reports their outcomes.
func (s *session) wait(ctx context.Context, w *producer.Waiter) error {
	began, all := time.Now(), w.Pending()
	s.report.sum.Waited = &endings{Pending: all}
	waiting := ctx
	if s.flags.WaitTimeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(ctx, s.flags.WaitTimeout, errWaitTimeout)
		defer cancel()
	}
	s.report.screen.begin("waiting", int64(all))
	err := w.Wait(waiting)
	s.report.screen.end()
	n := s.report.sum.Waited
	s.report.note("%d done, %d poison, %d cancelled, %d pending, in %v",
		n.Done, n.Poison, n.Cancelled, n.Pending, time.Since(began).Round(time.Millisecond))
	pending := fmt.Sprintf("the jobs continue; not ended: %d of %d", n.Pending, all)
	switch {
	case ctx.Err() != nil && err != nil:
		return fmt.Errorf("interrupted; %s", pending)
	case errors.Is(err, errWaitTimeout):
		return fmt.Errorf("waited for %s; %s", s.flags.WaitTimeout, pending)
	case err != nil:
		return fmt.Errorf("stopped waiting: %w; %s", err, pending)
	case n.bad() > 0:
		return fmt.Errorf("%d of %d jobs ended without a result; the lines above say why", n.bad(), all)
	}
	return nil
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
