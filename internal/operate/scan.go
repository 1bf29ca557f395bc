package operate

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/queue"
)

const (
	// hold is how long a claimed message is hidden: for as long as one batch
	// takes, with room. One that turns up again in the same walk is passed over.
	hold = 2 * time.Minute

	// parallel is how many jobs are worked on, and messages put back, at once.
	parallel = 8

	// tidyTimeout bounds putting messages back after a walk was told to stop.
	tidyTimeout = 10 * time.Second
)

// Selection says which messages are meant. The zero value means none.
type Selection struct {
	// All means every message.
	All bool

	// Names are ids of jobs, or of messages: the poison message's own, or that
	// of the message it stands for.
	Names []string
}

// Has reports whether an item is meant, and whether a message's id says so.
func (s Selection) Has(it Item) (meant, byMessage bool) {
	byMessage = slices.Contains(s.Names, it.MessageID) || it.Poison.MessageID != "" && slices.Contains(s.Names, it.Poison.MessageID)
	return s.All || byMessage || it.Poison.ID != "" && slices.Contains(s.Names, it.Poison.ID), byMessage
}

// claimed is an item in hand.
type claimed struct {
	Item
	lease *queue.Lease
}

// scan goes through the poison queue once, from front to end. do works on each
// message that is meant and says whether it is gone; tell hears of the others.
// Both may be nil. What is not gone is put back at the end. When ctx ends, walk
// finishes what it has begun and returns the cause.
func (p *PoisonQueue) scan(ctx context.Context, s Selection, do func(context.Context, *claimed) (gone bool, err error), tell func(Item) error) error {
	seen := map[string]*queue.Lease{}
	var put []*queue.Lease
	defer func() { p.putBack(ctx, put) }()
	for {
		batch, err := p.claim(ctx, seen)
		if err != nil || len(batch) == 0 {
			return err
		}
		var meant []*claimed
		for _, c := range batch {
			put = append(put, c.lease)
			if is, _ := s.Has(c.Item); is && do != nil {
				meant = append(meant, c)
			} else if tell != nil {
				if err := tell(c.Item); err != nil {
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

// claim takes the next messages that were not seen yet; none means the end.
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
			before.Adopt(l) // so that the older lease can put it back
			continue
		}
		seen[l.ID] = l
		batch = append(batch, &claimed{Item: newItem(l.ID, l.Text(), l.InsertedAt), lease: l})
	}
	return batch, nil
}

// doAll works on several jobs at once, and on the messages of one job one after
// another. It returns the leases of the messages that are gone.
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
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, same := range byJob {
		group.Go(func() error {
			for _, c := range same {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				is, err := do(context.WithoutCancel(ctx), c) // what is begun is ended
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

// putBack makes messages visible again. One that cannot be becomes visible by
// itself.
func (p *PoisonQueue) putBack(ctx context.Context, leases []*queue.Lease) {
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
