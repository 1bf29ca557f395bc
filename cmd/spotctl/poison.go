package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/plaintext"
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

// poisonQueue connects to the deployment. It sends nothing.
func (s *session) poisonQueue(defaultKind string) (*operate.PoisonQueue, error) {
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

// add prints what became of one message.
func (t *tally) add(o operate.Outcome) error {
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
	poison, err := s.poisonQueue(c.DefaultKind)
	if err != nil {
		return err
	}
	t := s.newTally(selection)
	return t.finish(ctx, poison.Replay(ctx, selection, c.FromScratch, t.add))
}

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
	poison, err := s.poisonQueue("")
	if err != nil {
		return err
	}
	if c.All && !c.Yes {
		if !s.interactive {
			return &cli.ConfigError{Err: errors.New("--all would purge every job on the poison queue: give --yes too")}
		}
		_, about, err := poison.Peek(ctx)
		if err != nil {
			return err
		}
		if !s.ask("Purge all of about %d messages? This cannot be undone. [y/N] ", about) {
			return errNotConfirmed
		}
	}
	t := s.newTally(selection)
	return t.finish(ctx, poison.Purge(ctx, selection, t.add))
}

// outcomeLine is what became of a message, as a script reads it.
type outcomeLine struct {
	ID      string         `json:"id,omitempty"` // the job's, if it is known
	Message string         `json:"message"`
	Action  operate.Action `json:"action"`
	Detail  string         `json:"detail,omitempty"`
}

// outcome prints what became of a message.
func (p *printer) outcome(o operate.Outcome) error {
	detail := o.Detail
	if o.Err != nil {
		detail = azure.Explain(o.Err)
	}
	if p.json {
		return p.line(outcomeLine{ID: o.Job, Message: o.MessageID, Action: o.Action, Detail: detail})
	}
	id := o.Job
	if id == "" {
		id = "message " + o.MessageID
	}
	_, err := fmt.Fprintf(p.out, "%-8s  %s  %s\n", o.Action, id, plaintext.Line(detail))
	return err
}

// summary is what came of a replay or purge.
type summary struct {
	Replayed int      `json:"replayed"`
	Purged   int      `json:"purged"`
	Dropped  int      `json:"dropped"`
	Refused  int      `json:"refused"`
	Failed   int      `json:"failed"`
	NotFound []string `json:"not_found,omitempty"`
	Error    string   `json:"error,omitempty"` // why the exit code is not 0
}

func (s *summary) count(a operate.Action) {
	*map[operate.Action]*int{
		operate.Replayed: &s.Replayed, operate.Purged: &s.Purged, operate.Dropped: &s.Dropped,
		operate.Refused: &s.Refused, operate.Failed: &s.Failed,
	}[a]++
}

// summary prints the sum, and returns err or what went wrong with that.
func (p *printer) summary(s *summary, err error) error {
	if !p.json {
		p.note("%d replayed, %d purged, %d dropped, %d refused, %d failed", s.Replayed, s.Purged, s.Dropped, s.Refused, s.Failed)
		return err
	}
	if err != nil {
		s.Error = azure.Explain(err)
	}
	if printErr := p.line(map[string]*summary{"summary": s}); err == nil {
		return printErr
	}
	return err
}
