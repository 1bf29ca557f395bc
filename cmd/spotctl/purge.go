package main

import (
	"context"
	"errors"

	"github.com/spotworker/spotworker/internal/cli"
)

// purgeCommand gives jobs up for good.
type purgeCommand struct {
	chosen
	Yes bool `help:"Do not ask before --all." env:"-"`
}

// Help is shown by poison purge --help.
func (*purgeCommand) Help() string {
	return `A job that was given up becomes cancelled; its state, its payload and its message are removed, which cannot be undone. Its record stays, so that no old message of it begins it anew.

The record of the job decides, as for replay. A message whose job's id was used for other work is taken away only by the message's own id, and nothing else with it.`
}

var errNotConfirmed = errors.New("nothing was purged")

func (c *purgeCommand) run(ctx context.Context, s *session) error {
	selection, err := c.selection()
	if err != nil {
		return err
	}
	desk, err := s.desk("")
	if err != nil {
		return err
	}
	if c.All && !c.Yes {
		if !s.interactive {
			return &cli.ConfigError{Err: errors.New("--all would purge every job on the poison queue: give --yes too")}
		}
		_, about, err := desk.Peek(ctx)
		if err != nil {
			return err
		}
		if !s.ask("Purge all of about %d messages? This cannot be undone. [y/N] ", about) {
			return errNotConfirmed
		}
	}
	t := s.newTally(selection)
	return t.finish(ctx, desk.Purge(ctx, selection, t.tell))
}
