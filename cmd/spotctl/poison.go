package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/operate"
)

// poisonCommands are the commands on the poison queue.
type poisonCommands struct {
	List   listCommand   `cmd:"" help:"List what is on the poison queue."`
	Show   showCommand   `cmd:"" help:"Show all that is known of one job that was given up."`
	Replay replayCommand `cmd:"" help:"Give jobs another chance, from their recorded state or from scratch."`
	Purge  purgeCommand  `cmd:"" help:"Give jobs up for good: cancel them, and remove their state and payload."`
}

// parallelCalls is for how many calls at once the connections are kept.
const parallelCalls = 16

// desk connects to the deployment. It sends nothing.
func (s *session) desk(defaultKind string) (*operate.PoisonQueue, error) {
	stores, err := s.Open(parallelCalls, version)
	if err != nil {
		return nil, err
	}
	return &operate.PoisonQueue{
		Poison: stores.Poison, Queue: stores.Queue, OnDemand: stores.OnDemand,
		Payloads: stores.Payloads, Records: stores.Records, Name: name(), DefaultKind: defaultKind,
	}, nil
}

// chosen are the flags that say which messages are meant.
type chosen struct {
	IDs []string `arg:"" optional:"" name:"id" help:"Ids of jobs, or of messages: what list shows."`
	All bool     `help:"Everything that is on the poison queue." env:"-"`
}

// selection is what the flags choose. Nothing and everything at once are refused.
func (c *chosen) selection() (operate.Selection, error) {
	switch {
	case len(c.IDs) == 0 && !c.All:
		return operate.Selection{}, &cli.ConfigError{Err: errors.New("nothing is chosen: give ids, or --all")}
	case len(c.IDs) > 0 && c.All:
		return operate.Selection{}, &cli.ConfigError{Err: errors.New("--all means every job: leave the ids out")}
	}
	return operate.Selection{All: c.All, Names: c.IDs}, nil
}

// tally says what became of the messages, and what is to be said in the end.
type tally struct {
	*printer
	names []string // that were given
	found map[string]bool
	sum   summary
}

// newTally is for one replay or purge.
func (s *session) newTally(chosen operate.Selection) *tally {
	return &tally{printer: s.printer, names: chosen.Names, found: map[string]bool{}}
}

// tell prints what became of one message.
func (t *tally) tell(o operate.Outcome) error {
	for _, name := range t.names {
		if meant, _ := (operate.Selection{Names: []string{name}}).Has(o.Item); meant {
			t.found[name] = true
		}
	}
	t.sum.count(o.Action)
	return t.outcome(o)
}

// finish says what came of all, and returns the error to end with: that of the
// run, or that not all was done which was asked for.
func (t *tally) finish(ctx context.Context, err error) error {
	for _, name := range t.names {
		if !t.found[name] {
			t.sum.NotFound = append(t.sum.NotFound, name)
		}
	}
	undone := t.sum.Refused + t.sum.Failed
	switch {
	case ctx.Err() != nil:
		err = errors.New("interrupted; what was begun is done, the rest is as it was")
	case err != nil:
	case len(t.sum.NotFound) > 0:
		err = fmt.Errorf("no message on the poison queue is of %s", strings.Join(t.sum.NotFound, ", "))
	case undone > 0:
		err = fmt.Errorf("nothing was done about %d of the messages; the lines above say why", undone)
	}
	return t.summary(&t.sum, err)
}
