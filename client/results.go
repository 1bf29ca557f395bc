package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/producer"
)

// Results yields the results of the selected jobs that are done, in unspecified order,
// [Options].Parallel at once: a call for each 5,000 records of the deployment, and one for
// each result that is not empty. f.Status is not used. An error ends the sequence.
//
// The listing is a snapshot: a job that ends later may be missing. A job that was removed
// since the listing is left out, and so is one that was put again and runs.
func (c *Client) Results(ctx context.Context, f Filter) iter.Seq2[Outcome, error] {
	f.Status = []Status{StatusDone}
	return func(yield func(Outcome, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		found, done := make(chan Outcome), make(chan error, 1)
		go func() {
			done <- c.sendResults(ctx, f, found)
			close(found)
		}()
		defer func() {
			cancel()
			for range found { // until the sender has ended
			}
		}()
		for outcome := range found {
			if !yield(outcome, nil) {
				return
			}
		}
		if err := <-done; err != nil {
			yield(Outcome{}, err)
		}
	}
}

// sendResults sends the results of the selected jobs.
func (c *Client) sendResults(ctx context.Context, f Filter, to chan<- Outcome) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(producer.Reads(c.parallel))
	for r, err := range c.records(ctx, f) {
		if err != nil {
			if failed := group.Wait(); failed != nil {
				return failed // it ended the listing
			}
			return c.readable(err, toRead)
		}
		if j := jobOf(r); f.Has(j) {
			group.Go(func() error { return c.sendResult(ctx, r, Outcome{Job: j, Result: []byte{}}, to) })
		}
	}
	return group.Wait()
}

// sendResult reads and sends the result of a job that was listed.
func (c *Client) sendResult(ctx context.Context, r checkpoint.Record, o Outcome, to chan<- Outcome) (err error) {
	if r.Size > 0 {
		o.Result, err = c.stores.Records.ResultOf(ctx, r)
		if bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobNotFound) {
			o.Result, err = c.Result(ctx, r.ID) // the record was written or removed since the listing
		}
		switch {
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrNotFinished):
			return nil
		case err != nil:
			return fmt.Errorf("result of %s: %w", r.ID, c.readable(err, toRead))
		}
	}
	select {
	case to <- o:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
