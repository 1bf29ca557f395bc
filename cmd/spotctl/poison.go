package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview/actions"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// poisonCommands are the commands on the poison queue.
type poisonCommands struct {
	List   listCommand   `cmd:"" help:"List the messages on the poison queue."`
	Show   showCommand   `cmd:"" help:"Show all details of one job that was dead-lettered."`
	Replay replayCommand `cmd:"" help:"Start jobs again, from their recorded state or from scratch."`
	Purge  purgeCommand  `cmd:"" help:"Cancel jobs permanently, and remove their state and payload."`
}

// parallelCalls is how many connections are kept open.
const parallelCalls = 16

// filters are the flags that narrow a selection of messages.
type filters struct {
	Kind      string        `help:"Only jobs of this kind." placeholder:"KIND" env:"-"`
	ReasonHas string        `help:"Only jobs whose reason contains this text, in upper or lower case." placeholder:"TEXT" env:"-"`
	By        string        `help:"Only jobs that this worker, or a worker of this VM, dead-lettered." placeholder:"WORKER" env:"-"`
	Within    time.Duration `help:"Only jobs that were dead-lettered within this time." placeholder:"TIME" env:"-"`
	Before    time.Duration `help:"Only jobs that were dead-lettered before that: 1h for more than an hour ago." placeholder:"TIME" env:"-"`
}

func (f *filters) filter(now time.Time) client.PoisonFilter {
	filter := client.PoisonFilter{Kind: f.Kind, Reason: f.ReasonHas, Worker: f.By}
	if f.Within > 0 {
		filter.After = now.Add(-f.Within)
	}
	if f.Before > 0 {
		filter.Before = now.Add(-f.Before)
	}
	return filter
}

// chosen are the flags that select messages.
type chosen struct {
	IDs []string `arg:"" optional:"" name:"id" help:"Ids of jobs, or of messages, as shown by list."`
	All bool     `help:"All messages on the poison queue." env:"-"`
	filters
	Timeout time.Duration `help:"Longest time to take; 0s is no limit." default:"1h" env:"-"`
}

// selection returns the selection of the flags. It refuses none, and ids with --all.
func (c *chosen) selection() (client.Selection, error) {
	filtered := c.filters != filters{}
	switch {
	case len(c.IDs) == 0 && !c.All && !filtered:
		return client.Selection{}, &cli.ConfigError{Err: errors.New("nothing is chosen: give ids, a filter such as --kind, or --all")}
	case len(c.IDs) > 0 && c.All:
		return client.Selection{}, &cli.ConfigError{Err: errors.New("--all means every job: leave the ids out")}
	}
	return client.Selection{All: len(c.IDs) == 0, IDs: c.IDs, Filter: c.filter(time.Now())}, nil
}

// tally prints and counts the outcomes of a replay or purge.
type tally struct {
	printer *printer
	sum     actions.PoisonSum
}

// add prints and counts the outcome for one message.
func (t *tally) add(r client.ActionResult) error {
	if !t.sum.Count(r) {
		return nil
	}
	return t.printer.outcome(r)
}

// run calls act, which handles the selected messages, and prints the summary. If all messages were
// meant, it also counts the messages that act could not see. The service counts too many at times, so
// both a count before and one after have to say so.
func (t *tally) run(ctx, within context.Context, deployment *client.Client, selection client.Selection,
	act func(report func(client.ActionResult) error) error) error {
	hidden := 0
	if selection.All {
		hidden = hiddenPoison(within, deployment)
	}
	err := act(t.add)
	if hidden > 0 && err == nil {
		t.sum.Hidden = min(hidden, hiddenPoison(within, deployment))
	}
	if t.sum.Hidden > 0 && !t.printer.json {
		t.printer.note(hiddenRemark+": repeat the command then", t.sum.Hidden)
	}
	return t.finish(ctx, err)
}

// hiddenPoison returns about how many messages of the poison queue are hidden; 0 if that cannot be told.
func hiddenPoison(ctx context.Context, deployment *client.Client) int {
	messages, about, err := deployment.PeekPoison(ctx)
	if err != nil || len(messages) >= queue.MaxClaim {
		return 0
	}
	return about - len(messages)
}

// hiddenRemark is about messages of the poison queue.
const hiddenRemark = "about %d messages are hidden, because another command has read them; they are visible again within 2 minutes"

// finish prints the summary, and returns the error to exit with.
func (t *tally) finish(ctx context.Context, err error) error {
	return t.printer.summary(&t.sum, &t.sum.Error, t.sum.Outcome(ctx, err))
}

// replayCommand starts jobs again.
type replayCommand struct {
	chosen
	FromScratch bool   `help:"Start from the beginning, without the recorded state." env:"-"`
	DefaultKind string `help:"${about_replay_default_kind}" placeholder:"KIND" env:"-"`
}

// Help is shown by poison replay --help.
func (*replayCommand) Help() string {
	return `A job that was dead-lettered goes back to the queue that it came from, and continues from its
recorded state. Its failures, unclean exits and run time are reset. Filters such as --kind select
the jobs that match all of them.

The record of the job decides. A job that is done or cancelled, or runs again, needs nothing: only
its message is removed, as an old duplicate. An id that was used for other work is refused. After an
interruption the command can be repeated.`
}

func (c *replayCommand) run(ctx context.Context, s *session) error {
	selection, err := c.selection()
	if err != nil {
		return err
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	within, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	t := &tally{printer: s.printer}
	o := client.ReplayOptions{FromScratch: c.FromScratch, DefaultKind: c.DefaultKind}
	return t.run(ctx, within, deployment, selection, func(report func(client.ActionResult) error) error {
		return deployment.Replay(within, selection, o, report)
	})
}

// purgeCommand cancels jobs permanently.
type purgeCommand struct {
	chosen
	Yes bool `help:"Do not ask before --all or a filter." env:"-"`
}

// Help is shown by poison purge --help.
func (*purgeCommand) Help() string {
	return `A job that was dead-lettered becomes cancelled; its state, its payload and its message are
removed, which cannot be undone. Its record stays, so that no old message starts it again. Filters
such as --kind select the jobs that match all of them; "spotctl poison list" with the same filters
shows them first.

The record of the job decides, as for replay. If the job's id was used for other work, only the
message is removed, and only if the message's own id is given.`
}

var errNotConfirmed = errors.New("nothing was purged")

func (c *purgeCommand) run(ctx context.Context, s *session) error {
	selection, err := c.selection()
	if err != nil {
		return err
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	within, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	if selection.All && !c.Yes {
		if !s.printer.interactive {
			return &cli.ConfigError{Err: errors.New("--all, or a filter without ids, would purge every job on the poison queue that matches: " +
				"give --yes too")}
		}
		_, about, err := deployment.PeekPoison(within)
		if err != nil {
			return err
		}
		which := "all of"
		if selection.Filter != (client.PoisonFilter{}) {
			which = "those that match, of"
		}
		if !s.printer.ask("%s [y/N] ", actions.PurgeQuestion(which, about)) {
			return errNotConfirmed
		}
	}
	t := &tally{printer: s.printer}
	return t.run(ctx, within, deployment, selection, func(report func(client.ActionResult) error) error {
		return deployment.Purge(within, selection, report)
	})
}

// outcomeLine is the outcome for a message, in the JSON output.
type outcomeLine struct {
	ID      string        `json:"id,omitempty"` // of the job; empty if unknown
	Message string        `json:"message"`
	Action  client.Action `json:"action"`
	Detail  string        `json:"detail,omitempty"`
}

// outcome prints the outcome for a message.
func (p *printer) outcome(r client.ActionResult) error {
	job := r.ID
	if job == r.MessageID {
		job = ""
	}
	if p.json {
		return p.line(outcomeLine{ID: job, Message: r.MessageID, Action: r.Action, Detail: r.Detail})
	}
	if job == "" {
		job = "message " + r.MessageID
	}
	return p.lines([]string{fmt.Sprintf("%-8s  %s  %s", r.Action, plaintext.Line(job), plaintext.Line(r.Detail))})
}

// summary prints a summary, with err at reason. It returns err, or the error of printing.
func (p *printer) summary(s fmt.Stringer, reason *string, err error) error {
	if !p.json {
		p.note("%s", s)
		return err
	}
	if err != nil {
		*reason = azure.Explain(err)
	}
	if printErr := p.line(map[string]fmt.Stringer{"summary": s}); err == nil {
		return printErr
	}
	return err
}
