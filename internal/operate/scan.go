package operate

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/queue"
)

const (
	// hold is how long a claimed message is hidden: longer than one batch takes. A
	// message that appears again in the same scan is skipped.
	hold = 2 * time.Minute

	// parallel is how many jobs are handled, and messages released, at once.
	parallel = 8

	// tidyTimeout is the timeout of releasing messages after a scan was stopped.
	tidyTimeout = 10 * time.Second
)

// Selection selects messages. The zero value selects none.
type Selection struct {
	// All selects every message.
	All bool

	// Names are ids of jobs, or of messages: of the poison message, or of the
	// original one.
	Names []string

	// Filter narrows the selection.
	Filter Filter
}

// Filter narrows a selection by the messages' contents. The zero value leaves it as it
// is. A message that is not a valid poison message matches no other filter.
type Filter struct {
	// Kind is the kind of the jobs.
	Kind string

	// Reason is a part of the reason, in upper or lower case.
	Reason string

	// Worker is the name of the worker that gave the job up, or of its VM.
	Worker string

	// After and Before bound when the job was dead-lettered, by the worker's clock.
	After, Before time.Time
}

// Has reports whether an item is selected, and whether by a message's id.
func (s Selection) Has(it Item) (meant, byMessage bool) {
	byMessage = slices.Contains(s.Names, it.MessageID) || it.Poison.MessageID != "" && slices.Contains(s.Names, it.Poison.MessageID)
	named := s.All || byMessage || it.Poison.ID != "" && slices.Contains(s.Names, it.Poison.ID)
	return named && s.Filter.has(it), byMessage
}

func (f Filter) has(it Item) bool {
	p := it.Poison
	switch {
	case f == Filter{}:
		return true
	case it.Fault != nil:
		return false
	}
	return (f.Kind == "" || p.Kind == f.Kind) &&
		strings.Contains(strings.ToLower(p.Reason), strings.ToLower(f.Reason)) &&
		(f.Worker == "" || control.IsOn(p.Worker, f.Worker)) &&
		(f.After.IsZero() || p.PoisonedAt.After(f.After)) && (f.Before.IsZero() || p.PoisonedAt.Before(f.Before))
}

// claimed is an item whose message was claimed.
type claimed struct {
	Item
	lease *queue.Lease
	batch int // the number of the claim in its scan
}

// scan goes through the poison queue once, from front to end. It calls do for each
// selected message, which reports whether the message is gone, and report for the
// others, if it is set. The remaining messages are released at the end. When ctx
// ends, scan finishes the messages that were begun and returns the cause.
func (p *PoisonQueue) scan(ctx context.Context, s Selection, do func(context.Context, *claimed) (gone bool, err error),
	report func(Item) error) error {
	seen := map[string]*queue.Lease{}
	var put []*queue.Lease
	defer func() { p.release(ctx, put) }()
	for n := 1; ; n++ {
		batch, err := p.claim(ctx, seen)
		if err != nil || len(batch) == 0 {
			return err
		}
		for _, c := range batch {
			c.batch = n
			put = append(put, c.lease)
		}
		var meant []*claimed
		for _, c := range batch {
			if is, _ := s.Has(c.Item); is {
				meant = append(meant, c)
			} else if report != nil {
				if err := report(c.Item); err != nil {
					return err
				}
			}
		}
		gone, err := doAll(ctx, meant, do)
		put = slices.DeleteFunc(put, func(l *queue.Lease) bool { return gone[l] })
		if err != nil {
			return err
		}
	}
}

// claim claims the next messages that were not seen yet, none means the end.
func (p *PoisonQueue) claim(ctx context.Context, seen map[string]*queue.Lease) ([]*claimed, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	leases, err := p.Poison.Claim(ctx, queue.MaxClaim, hold)
	if err != nil {
		return nil, err
	}
	var batch []*claimed
	for _, l := range leases {
		if before := seen[l.ID]; before != nil {
			before.Adopt(l) // so that the older lease can release it
			continue
		}
		seen[l.ID] = l
		batch = append(batch, &claimed{Item: newItem(l.ID, l.Text(), l.InsertedAt), lease: l})
	}
	return batch, nil
}

// doAll handles several jobs at once, and the messages of one job one after another, until
// ctx ends or do returns an error. It returns the leases of the messages that are gone.
func doAll(ctx context.Context, items []*claimed, do func(context.Context, *claimed) (bool, error)) (map[*queue.Lease]bool, error) {
	byJob := map[string][]*claimed{}
	for _, c := range items {
		key := c.Poison.ID
		if key == "" {
			key = "message " + c.MessageID
		}
		byJob[key] = append(byJob[key], c)
	}
	gone := make(chan *queue.Lease, len(items))
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, same := range byJob {
		group.Go(func() error {
			for _, c := range same {
				if running.Err() != nil {
					return context.Cause(running)
				}
				is, err := do(context.WithoutCancel(ctx), c) // a message in progress is finished
				if is {
					gone <- c.lease
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	close(gone)
	all := map[*queue.Lease]bool{}
	for l := range gone {
		all[l] = true
	}
	return all, err
}

// release makes messages visible again. If that fails, they become visible when hold
// expires.
func (p *PoisonQueue) release(ctx context.Context, leases []*queue.Lease) {
	limit := hold
	if ctx.Err() != nil {
		limit = tidyTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, l := range leases {
		group.Go(func() error { return l.Release(ctx, 0) })
	}
	_ = group.Wait()
}
