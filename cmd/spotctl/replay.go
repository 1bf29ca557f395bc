package main

import (
	"context"
)

// replayCommand gives jobs another chance.
type replayCommand struct {
	chosen
	FromScratch bool   `help:"Forget the recorded state: begin anew." env:"-"`
	DefaultKind string `help:"Kind to make of messages that are no jobs, such as those of az storage message put; otherwise they stay where they are." placeholder:"KIND" env:"-"`
}

// Help is shown by poison replay --help.
func (*replayCommand) Help() string {
	return `A job that was given up goes back to the queue that it came from, and on from its recorded state. Its failures, its deaths without a word and the time that it took so far count no more.

The record of the job decides. One that is done or cancelled, or at work again, needs nothing: only its message is taken away, as an old duplicate. An id that has been used for other work is refused. What was interrupted can be done again.`
}

func (c *replayCommand) run(ctx context.Context, s *session) error {
	selection, err := c.selection()
	if err != nil {
		return err
	}
	desk, err := s.desk(c.DefaultKind)
	if err != nil {
		return err
	}
	t := s.newTally(selection)
	return t.finish(ctx, desk.Replay(ctx, selection, c.FromScratch, t.tell))
}
