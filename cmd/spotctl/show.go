package main

import (
	"context"
	"fmt"
)

// showCommand shows one job that was given up.
type showCommand struct {
	ID string `arg:"" name:"id" help:"Id of the job, or of its message: what list shows."`
}

// Help is shown by poison show --help.
func (*showCommand) Help() string {
	return `It changes nothing, unless the message is not among the 32 at the front: then it has to be looked for by claiming them all, as list --all does. Where the same job has several messages, the first one is shown.`
}

func (c *showCommand) run(ctx context.Context, s *session) error {
	desk, err := s.desk("")
	if err != nil {
		return err
	}
	it, err := find(ctx, desk, c.ID)
	if err != nil {
		return err
	}
	if it == nil {
		return fmt.Errorf("no message on the poison queue is of %s", c.ID)
	}
	text, record, err := desk.Lookup(ctx, *it)
	if err != nil {
		return err
	}
	return s.show(*it, text, record)
}
