package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/producer"
)

// errWaitTimeout ends the waiting after --wait-timeout.
var errWaitTimeout = errors.New("the time to wait is over")

// waiter returns a waiter for what p enqueues or skips.
func (s *session) waiter(stores *cli.Stores, p *producer.Producer) *producer.Waiter {
	w := &producer.Waiter{Records: stores.Records, Parallel: s.flags.Parallel, Ended: s.ended}
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

// wait waits until all jobs have ended, and says what became of them.
func (s *session) wait(ctx context.Context, w *producer.Waiter) error {
	began, all := time.Now(), w.Pending()
	s.sum.Waited = &endings{Pending: all}
	waiting := ctx
	if s.flags.WaitTimeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(ctx, s.flags.WaitTimeout, errWaitTimeout)
		defer cancel()
	}
	s.begin("waiting", int64(all))
	err := w.Wait(waiting)
	s.end()
	n := s.sum.Waited
	s.note("%d done, %d poison, %d cancelled, %d pending, in %v",
		n.Done, n.Poison, n.Cancelled, n.Pending, time.Since(began).Round(time.Millisecond))
	goOn := fmt.Sprintf("the jobs go on; not ended: %d of %d", n.Pending, all)
	switch {
	case ctx.Err() != nil && err != nil:
		return fmt.Errorf("interrupted; %s", goOn)
	case errors.Is(err, errWaitTimeout):
		return fmt.Errorf("waited for %s; %s", s.flags.WaitTimeout, goOn)
	case err != nil:
		return fmt.Errorf("stopped waiting: %w; %s", err, goOn)
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
