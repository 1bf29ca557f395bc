package producer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// Waiter waits for jobs to end. It holds the id, kind and hash of each in
// memory, and no more than Parallel results at once.
type Waiter struct {
	// Records are read until all jobs have ended.
	Records *checkpoint.Store

	// Parallel is how many records are read at once. Default [DefaultParallel].
	Parallel int

	// Ended is told what became of each job, one at a time and in the order in
	// which that was seen. An error ends the waiting.
	Ended func(Ended) error

	mu      sync.Mutex // guards what follows
	pending map[string]checkpoint.Delivery
	listed  int // records in the last listing
}

// Add makes the waiter wait for a job.
func (w *Waiter) Add(j Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending == nil {
		w.pending = map[string]checkpoint.Delivery{}
	}
	w.pending[j.ID()] = j.delivery()
}

// Pending returns how many jobs have not ended yet.
func (w *Waiter) Pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pending)
}

// Wait returns when all jobs have ended. Earlier it returns the cause of ctx's
// end, a refusal that will not pass, or the error of a storage that has failed
// for ten minutes.
// The jobs know nothing of it and go on. Wait may be called again.
func (w *Waiter) Wait(ctx context.Context) error {
	wait, good := time.Duration(0), time.Now()
	for {
		began, before := time.Now(), w.Pending()
		err := w.look(ctx)
		left := w.Pending()
		switch {
		case errors.Is(err, errTelling):
			return err
		case left == 0:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			good = time.Now()
		case forbidden(err) || time.Since(good) > maxOutage:
			return err
		}
		wait = nextLook(wait, left < before, time.Since(began))
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// look reads the records of all jobs once, and tells of those that have ended.
func (w *Waiter) look(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel(w.Parallel))
	err := w.each(ctx, group)
	if groupErr := group.Wait(); groupErr != nil {
		return groupErr // the cause of whatever ended the loop
	}
	return err
}

// each reads the records in the way that costs less.
func (w *Waiter) each(ctx context.Context, group *errgroup.Group) error {
	w.mu.Lock()
	ids := make([]string, 0, len(w.pending))
	for id := range w.pending {
		ids = append(ids, id)
	}
	listed := w.listed
	w.mu.Unlock()
	if byListing(len(ids), listed) {
		return w.list(ctx, group)
	}
	slices.Sort(ids)
	for _, id := range ids {
		group.Go(func() error {
			record, err := w.Records.Read(ctx, id)
			if errors.Is(err, checkpoint.ErrNotFound) {
				return nil // nobody has taken it up yet
			}
			if err != nil {
				return err
			}
			return w.judge(ctx, record)
		})
	}
	return nil
}

// list goes through all records of the deployment.
func (w *Waiter) list(ctx context.Context, group *errgroup.Group) error {
	n := 0
	for record, err := range w.Records.List(ctx, "") {
		if err != nil {
			return err
		}
		n++
		if _, ok := w.waitsFor(record.ID); ok && ctx.Err() == nil {
			group.Go(func() error { return w.judge(ctx, record) })
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed = n
	return nil
}

func (w *Waiter) waitsFor(id string) (checkpoint.Delivery, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d, ok := w.pending[id]
	return d, ok
}
