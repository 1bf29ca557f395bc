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
	List   listCommand   `cmd:"" help:"List the messages on the poison queue."`
	Show   showCommand   `cmd:"" help:"Show all details of one job that was given up."`
	Replay replayCommand `cmd:"" help:"Start jobs again, from their recorded state or from scratch."`
	Purge  purgeCommand  `cmd:"" help:"Cancel jobs permanently, and remove their state and payload."`
}

// parallelCalls is how many connections are kept open.
const parallelCalls = 16

// poisonQueue connects to the deployment. It makes no call.
func (s *session) poisonQueue(defaultKind string) (*operate.PoisonQueue, error) {
	stores, err := s.flags.Open(parallelCalls, version)
	if err != nil {
		return nil, err
	}
	return &operate.PoisonQueue{
		Poison: stores.Poison, Queue: stores.Queue, OnDemand: stores.OnDemand,
		Payloads: stores.Payloads, Records: stores.Records, Name: name(), DefaultKind: defaultKind,
	}, nil
}

// chosen are the flags that select messages.
type chosen struct {
	IDs []string `arg:"" optional:"" name:"id" help:"Ids of jobs, or of messages, as shown by list."`
	All bool     `help:"All messages on the poison queue." env:"-"`
}

// selection returns the selection of the flags. It refuses none, and ids with --all.
func (c *chosen) selection() (operate.Selection, error) {
	switch {
	case len(c.IDs) == 0 && !c.All:
		return operate.Selection{}, &cli.ConfigError{Err: errors.New("nothing is chosen: give ids, or --all")}
	case len(c.IDs) > 0 && c.All:
		return operate.Selection{}, &cli.ConfigError{Err: errors.New("--all means every job: leave the ids out")}
	}
	return operate.Selection{All: c.All, Names: c.IDs}, nil
}

// tally prints and counts the outcomes of a replay or purge.
type tally struct {
	printer *printer
	names   []string // that were given
	found   map[string]bool
	sum     summary
}

// newTally returns the tally of one replay or purge.
func (s *session) newTally(chosen operate.Selection) *tally {
	return &tally{printer: s.printer, names: chosen.Names, found: map[string]bool{}}
}

// add prints and counts the outcome for one message.
func (t *tally) add(o operate.Outcome) error {
	for _, name := range t.names {
		if selected, _ := (operate.Selection{Names: []string{name}}).Has(o.Item); selected {
			t.found[name] = true
		}
	}
	t.sum.count(o.Action)
	return t.printer.outcome(o)
}

// finish prints the summary, and returns the error to exit with: that of the run, or
// that some messages were not found or not handled.
func (t *tally) finish(ctx context.Context, err error) error {
	for _, name := range t.names {
		if !t.found[name] {
			t.sum.NotFound = append(t.sum.NotFound, name)
		}
	}
	undone := t.sum.Refused + t.sum.Failed
	switch {
	case ctx.Err() != nil:
		err = errors.New("interrupted; what was begun is finished, the rest is unchanged")
	case err != nil:
	case len(t.sum.NotFound) > 0:
		err = fmt.Errorf("the poison queue has no message of %s", strings.Join(t.sum.NotFound, ", "))
	case undone > 0:
		err = fmt.Errorf("nothing was done for %d of the messages; the lines above say why", undone)
	}
	return t.printer.summary(&t.sum, err)
}

// replayCommand starts jobs again.
type replayCommand struct {
	chosen
	FromScratch bool   `help:"Start from the beginning, without the recorded state." env:"-"`
	DefaultKind string `help:"Kind for messages that are not jobs, such as those of az storage message put; without it they stay where they are." placeholder:"KIND" env:"-"`
}

// Help is shown by poison replay --help.
func (*replayCommand) Help() string {
	return `A job that was given up goes back to the queue that it came from, and continues from its recorded state. Its failures, unclean exits and run time are reset.

The record of the job decides. A job that is done or cancelled, or runs again, needs nothing: only its message is removed, as an old duplicate. An id that was used for other work is refused. After an interruption the command can be repeated.`
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

// purgeCommand cancels jobs permanently.
type purgeCommand struct {
	chosen
	Yes bool `help:"Do not ask before --all." env:"-"`
}

// Help is shown by poison purge --help.
func (*purgeCommand) Help() string {
	return `A job that was given up becomes cancelled; its state, its payload and its message are removed, which cannot be undone. Its record stays, so that no old message starts it again.

The record of the job decides, as for replay. If the job's id was used for other work, only the message is removed, and only if the message's own id is given.`
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
		if !s.printer.interactive {
			return &cli.ConfigError{Err: errors.New("--all would purge every job on the poison queue: give --yes too")}
		}
		_, about, err := poison.Peek(ctx)
		if err != nil {
			return err
		}
		if !s.printer.ask("Purge all of about %d messages? This cannot be undone. [y/N] ", about) {
			return errNotConfirmed
		}
	}
	t := s.newTally(selection)
	return t.finish(ctx, poison.Purge(ctx, selection, t.add))
}

// outcomeLine is the outcome for a message, in the JSON output.
type outcomeLine struct {
	ID      string         `json:"id,omitempty"` // of the job; empty if unknown
	Message string         `json:"message"`
	Action  operate.Action `json:"action"`
	Detail  string         `json:"detail,omitempty"`
}

// outcome prints the outcome for a message.
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

// summary counts the outcomes of a replay or purge.
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

// summary prints the summary. It returns err, or the error of printing.
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
