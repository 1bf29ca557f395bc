package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/producer"
)

// Result returns the result of a job that is done, in two calls. Otherwise the error is
// [ErrNotFound], [ErrNotFinished], or an [*EndedError] for a job that is poison or was
// cancelled. [Decode] turns the result into a value.
func (c *Client) Result(ctx context.Context, id string) ([]byte, error) {
	r, err := c.read(ctx, id)
	if err != nil {
		return nil, err
	}
	return c.resultOf(ctx, r)
}

// resultOf returns the result of the job of a record.
func (c *Client) resultOf(ctx context.Context, r checkpoint.Record) ([]byte, error) {
	switch {
	case r.Status == checkpoint.Done:
		result, err := c.stores.Records.ResultOf(ctx, r)
		return result, c.readable(err, toRead)
	case r.Status.Final():
		return nil, &EndedError{Job: jobOf(r)}
	}
	return nil, fmt.Errorf("job %s is %s: %w", r.ID, r.Status, ErrNotFinished)
}

// Wait waits until a job has ended, and returns what [Client.Result] does. It polls the
// job's record, every half a second at first and every 5 seconds later. A job that has
// no record is waited for: it may be on the queue. When ctx ends, Wait returns the cause; the
// job continues.
func (c *Client) Wait(ctx context.Context, id string) ([]byte, error) {
	outcome, err := c.outcome(ctx, id)
	if err != nil {
		return nil, err
	}
	return outcome.Result, outcome.Err
}

// outcome waits for the outcome of a job.
func (c *Client) outcome(ctx context.Context, id string) (Outcome, error) {
	for outcome, err := range c.WaitMany(ctx, []string{id}, WaitOptions{}) {
		return outcome, err
	}
	return Outcome{}, fmt.Errorf("job %s: %w", id, ErrNotFinished) // not reached: there is one outcome, or an error
}

// WaitOptions are settings of [Client.WaitMany].
type WaitOptions struct {
	// Progress, if set, is called with each job that has a record and has not ended, at
	// each poll: from other goroutines, but one at a time. It must be quick.
	Progress func(Job)
}

// Outcome is how a job has ended.
type Outcome struct {
	// Job is the job's record.
	Job Job

	// Result is the result of a job that is done.
	Result []byte

	// Err is why there is no result: an [*EndedError], or [ErrNewerVersion].
	Err error
}

// WaitMany yields the outcome of each of the jobs when it has ended, in that order. An
// error ends the sequence: the cause of ctx, a refusal that will not pass, or the last
// error if storage has failed for ten minutes. None of this affects the jobs. If records
// could not be read when ctx ended, the error also wraps the reason.
//
// It polls all records at once: a call for each job, or, for more than 64 jobs, one for
// each 5,000 records of the deployment. Another call reads each result.
func (c *Client) WaitMany(ctx context.Context, ids []string, o WaitOptions) iter.Seq2[Outcome, error] {
	return func(yield func(Outcome, error) bool) {
		for _, id := range ids {
			if err := jobid.Validate(id); err != nil {
				yield(Outcome{}, err)
				return
			}
		}
		ctx, cancel := context.WithCancel(ctx)
		ended, done := make(chan Outcome), make(chan error, 1)
		go func() {
			done <- c.waiter(ctx, ids, o, ended).Wait(ctx)
			close(ended)
		}()
		defer func() {
			cancel()
			for range ended { // until the waiter has ended
			}
		}()
		for outcome := range ended {
			if !yield(outcome, nil) {
				return
			}
		}
		err := <-done
		if unread, ok := errors.AsType[*producer.UnreadError](err); ok {
			unread.Err = c.readable(unread.Err, toRead)
			yield(Outcome{}, unread)
		} else if err != nil {
			yield(Outcome{}, c.readable(err, toRead))
		}
	}
}

// waiter returns the waiter for jobs, which sends their outcomes.
func (c *Client) waiter(ctx context.Context, ids []string, o WaitOptions, ended chan<- Outcome) *producer.Waiter {
	w := &producer.Waiter{Records: c.stores.Records, Parallel: c.parallel}
	w.Ended = func(e producer.Ended) error {
		select {
		case ended <- c.outcomeOf(e):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if o.Progress != nil {
		w.Progress = func(r checkpoint.Record) { o.Progress(jobOf(r)) }
	}
	for _, id := range ids {
		w.AddID(id)
	}
	return w
}

func (c *Client) outcomeOf(e producer.Ended) Outcome {
	outcome := Outcome{Job: jobOf(e.Record), Result: e.Result}
	switch {
	case errors.Is(e.Err, checkpoint.ErrUnknownFormat):
		outcome.Err = fmt.Errorf("job %s: %w", e.ID, ErrNewerVersion)
	case e.Err != nil:
		outcome.Err = fmt.Errorf("job %s: %w", e.ID, e.Err)
	case e.Status != checkpoint.Done:
		outcome.Err = &EndedError{Job: outcome.Job}
	}
	return outcome
}

// Decode returns a result as a value, from JSON. It takes what Result and Wait return:
//
//	report, err := client.Decode[Report](c.Wait(ctx, id))
func Decode[T any](result []byte, err error) (T, error) {
	var v T
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(result, &v); err != nil {
		return v, fmt.Errorf("decode the result of a job as %T: %w", v, err)
	}
	return v, nil
}
