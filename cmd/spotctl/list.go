package main

import (
	"context"

	"github.com/spotworker/spotworker/internal/operate"
)

// listCommand lists the poison queue.
type listCommand struct {
	All bool `help:"List more than the 32 messages at the front." env:"-"`
}

// Help is shown by poison list --help.
func (*listCommand) Help() string {
	return `Without --all nothing is changed: the service shows the 32 messages at the front. What lies behind them can only be seen by claiming it, so with --all each message is hidden from other operators until the list is through, at most 2 minutes.`
}

func (c *listCommand) run(ctx context.Context, s *session) error {
	desk, err := s.desk("")
	if err != nil {
		return err
	}
	list := s.list()
	if c.All {
		if err := desk.All(ctx, list.add); err != nil {
			return err
		}
		return list.end(list.n)
	}
	items, about, err := desk.Peek(ctx)
	if err != nil {
		return err
	}
	for _, it := range items {
		if err := list.add(it); err != nil {
			return err
		}
	}
	return list.end(about)
}

// find returns the first message that a name means: among those at the front,
// which changes nothing, or else among all.
func find(ctx context.Context, desk *operate.PoisonQueue, name string) (found *operate.Item, err error) {
	meant := operate.Selection{Names: []string{name}}
	look := func(it operate.Item) error {
		if is, _ := meant.Has(it); is && found == nil {
			found = &it
		}
		return nil
	}
	items, about, err := desk.Peek(ctx)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		_ = look(it) // never fails
	}
	if found == nil && about > len(items) {
		err = desk.All(ctx, look)
	}
	return found, err
}
