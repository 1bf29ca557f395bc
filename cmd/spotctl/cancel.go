package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/plaintext"
)

// cancelUnasked is how many jobs are cancelled without a question.
const cancelUnasked = 20

// cancelCommand cancels jobs that wait or run.
type cancelCommand struct {
	IDs     []string      `arg:"" name:"id" help:"Ids of jobs; - reads them from standard input, one a line."`
	Reason  string        `help:"Why, for people; it is kept in the jobs' records." env:"-"`
	Known   bool          `help:"Leave jobs without a record alone, also those that may wait for their first worker." env:"-"`
	Timeout time.Duration `help:"Longest time to take; 0s is no limit." default:"1h" env:"-"`
	Yes     bool          `help:"Do not ask before more than ${unasked} jobs, or those of standard input." env:"-"`
}

// Help is shown by cancel --help.
func (*cancelCommand) Help() string {
	return `A job that waits is not started any more. One that runs is stopped within 30 s, wherever it is; its handler sees the reason. Nothing of it is saved or committed from the moment at which this command reports it as cancelled; side effects that its handler has had stay. A cancelled job cannot be started again, and its id cannot be used for another job while its record is kept.

A job that no worker has claimed yet has no record: it is a message on the queue. The service shows the 32 messages at the front and the number of all. If the job's is among them, it is cancelled. If it is not, and these are all messages, there is no such job: nothing is written, and the exit code is 1. If there are more messages than the service shows, the id is barred: it gets a record that is cancelled, so that no worker starts the job if it waits; if there is no such job, its id cannot be used while that record is kept. With --known an id without a record is left alone.

A job that is done stays done. One that was given up is for "spotctl poison". Workers of versions before this command stop a running job at its next checkpoint. After an interruption the command can be repeated.

Exit codes: 0 all are cancelled or barred, 1 some are not, 78 wrong flags.`
}

func (c *cancelCommand) run(ctx context.Context, s *session) error {
	ids, err := c.ids(s)
	if err != nil {
		return err
	}
	if c.mustAsk() && !c.Yes {
		if !s.printer.interactive || slices.Contains(c.IDs, "-") {
			return &cli.ConfigError{Err: fmt.Errorf("more than %d jobs, or those of standard input, are only cancelled with --yes", cancelUnasked)}
		}
		if !s.printer.ask("Cancel %d jobs? This cannot be undone. [y/N] ", len(ids)) {
			return errors.New("nothing was cancelled")
		}
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	within, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	var sum cancelSummary
	err = deployment.Cancel(within, ids, client.CancelOptions{Reason: c.Reason, KnownOnly: c.Known}, func(r client.ActionResult) error {
		sum.count(r.Action)
		return s.printer.cancelled(r)
	})
	switch notDone := sum.Over + sum.Unknown + sum.Refused + sum.Failed; {
	case ctx.Err() != nil:
		err = errors.New("interrupted; the jobs that were reported as cancelled are, the others are unchanged or cancelled")
	case err != nil:
	case notDone > 0:
		err = fmt.Errorf("%d of %d jobs were not cancelled; the lines above say why", notDone, notDone+sum.Cancelled+sum.Barred)
	}
	return s.printer.cancelSummary(&sum, err)
}

func (c *cancelCommand) mustAsk() bool {
	return len(c.IDs) > cancelUnasked || slices.Contains(c.IDs, "-")
}

// ids returns the ids of the arguments, each once, and of standard input in the place
// of a dash.
func (c *cancelCommand) ids(s *session) (ids []string, err error) {
	seen := map[string]bool{}
	add := func(id string) {
		if id != "" && !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for _, id := range c.IDs {
		if id != "-" {
			add(id)
			continue
		}
		lines := bufio.NewScanner(s.printer.in)
		for lines.Scan() {
			add(strings.TrimSpace(lines.Text()))
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("read ids from standard input: %w", err)
		}
	}
	return ids, nil
}

// cancelLine is the outcome for a job, in the JSON output.
type cancelLine struct {
	ID     string        `json:"id"`
	Action client.Action `json:"action"`
	Was    client.Status `json:"was,omitempty"` // the job's status before; empty without a record
	Detail string        `json:"detail,omitempty"`
}

// cancelled prints the outcome for a job.
func (p *printer) cancelled(r client.ActionResult) error {
	if p.json {
		return p.line(cancelLine{ID: r.ID, Action: r.Action, Was: r.Was, Detail: r.Detail})
	}
	_, err := fmt.Fprintf(p.out, "%-9s  %s  %s\n", r.Action, plaintext.Line(r.ID), plaintext.Line(r.Detail))
	return err
}

// cancelSummary counts the outcomes of a cancel.
type cancelSummary struct {
	Cancelled int    `json:"cancelled"`
	Barred    int    `json:"barred"`
	Over      int    `json:"over"`
	Unknown   int    `json:"unknown"`
	Refused   int    `json:"refused"`
	Failed    int    `json:"failed"`
	Error     string `json:"error,omitempty"` // why the exit code is not 0
}

func (s *cancelSummary) count(a client.Action) {
	*map[client.Action]*int{
		client.Cancelled: &s.Cancelled, client.Barred: &s.Barred, client.Over: &s.Over, client.Unknown: &s.Unknown,
		client.Refused: &s.Refused, client.Failed: &s.Failed,
	}[a]++
}

// cancelSummary prints the summary. It returns err, or the error of printing.
func (p *printer) cancelSummary(s *cancelSummary, err error) error {
	if !p.json {
		p.note("%d cancelled, %d barred, %d over already, %d unknown, %d refused, %d failed", s.Cancelled, s.Barred, s.Over, s.Unknown, s.Refused, s.Failed)
		return err
	}
	if err != nil {
		s.Error = azure.Explain(err)
	}
	if printErr := p.line(map[string]*cancelSummary{"summary": s}); err == nil {
		return printErr
	}
	return err
}
