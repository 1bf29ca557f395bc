package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/plaintext"
)

// cancelUnasked is how many jobs are cancelled without a question.
const cancelUnasked = 20

// cancelCommand cancels jobs that wait or run.
type cancelCommand struct {
	IDs    []string `arg:"" name:"id" help:"Ids of jobs; - reads them from standard input, one a line."`
	Reason string   `help:"Why, for people; it is kept in the jobs' records." env:"-"`
	Known  bool     `help:"Leave jobs without a record alone: they wait for their first worker, or do not exist." env:"-"`
	Yes    bool     `help:"Do not ask before more than ${unasked} jobs, or those of standard input." env:"-"`
}

// Help is shown by cancel --help.
func (*cancelCommand) Help() string {
	return `A job that waits is not started any more. One that runs is stopped within 30 s, wherever it is; its handler sees the reason. Nothing of it is saved or committed from the moment at which this command reports it as cancelled; side effects that its handler has had stay. A cancelled job cannot be started again, and its id cannot be used for another job while its record is kept.

A job that no worker has claimed yet has no record and cannot be told from one that does not exist: its id is barred in advance, as the output shows. With --known such ids are left alone.

A job that is done stays done. One that was given up is for "spotctl poison". Workers of versions before this command stop a running job at its next checkpoint. After an interruption the command can be repeated.

Exit codes: 0 all are cancelled, 1 some are not, 78 wrong flags.`
}

func (c *cancelCommand) run(ctx context.Context, s *session) error {
	ids, readErr := c.ids(s)
	if c.mustAsk() && !c.Yes {
		if !s.printer.interactive || slices.Contains(c.IDs, "-") {
			return &cli.ConfigError{Err: fmt.Errorf("more than %d jobs, or those of standard input, are only cancelled with --yes", cancelUnasked)}
		}
		if !s.printer.ask("Cancel %d jobs? This cannot be undone. [y/N] ", len(c.IDs)) {
			return errors.New("nothing was cancelled")
		}
	}
	stores, err := s.flags.Open(parallelCalls, version)
	if err != nil {
		return err
	}
	canceller := &operate.Canceller{Records: stores.Records, Control: stores.Control, Name: name(), Reason: c.Reason, KnownOnly: c.Known}
	var sum cancelSummary
	err = canceller.Cancel(ctx, ids, func(o operate.CancelOutcome) error {
		sum.count(o.Action)
		return s.printer.cancelled(o)
	})
	switch notDone := sum.Over + sum.Unknown + sum.Refused + sum.Failed; {
	case ctx.Err() != nil:
		err = errors.New("interrupted; the jobs that were reported as cancelled are, the others are unchanged or cancelled")
	case err != nil:
	case *readErr != nil:
		err = fmt.Errorf("read ids from standard input: %w", *readErr)
	case notDone > 0:
		err = fmt.Errorf("%d of %d jobs were not cancelled; the lines above say why", notDone, notDone+sum.Cancelled)
	}
	return s.printer.cancelSummary(&sum, err)
}

func (c *cancelCommand) mustAsk() bool {
	return len(c.IDs) > cancelUnasked || slices.Contains(c.IDs, "-")
}

// ids yields the ids of the arguments, each once, and of standard input in the place
// of a dash. failed is the error of reading that.
func (c *cancelCommand) ids(s *session) (ids iter.Seq[string], failed *error) {
	failed = new(error)
	seen := map[string]bool{}
	return func(yield func(string) bool) {
		for _, id := range c.IDs {
			if id != "-" {
				if !seen[id] && !yield(id) {
					return
				}
				seen[id] = true
				continue
			}
			lines := bufio.NewScanner(s.printer.in)
			for lines.Scan() {
				id := strings.TrimSpace(lines.Text())
				if id == "" || seen[id] {
					continue
				}
				seen[id] = true
				if !yield(id) {
					return
				}
			}
			*failed = lines.Err()
		}
	}, failed
}

// cancelLine is the outcome for a job, in the JSON output.
type cancelLine struct {
	ID     string         `json:"id"`
	Action operate.Action `json:"action"`
	Was    string         `json:"was,omitempty"` // the job's status before; empty without a record
	Detail string         `json:"detail,omitempty"`
}

// cancelled prints the outcome for a job.
func (p *printer) cancelled(o operate.CancelOutcome) error {
	detail := o.Detail
	if o.Action == operate.Failed {
		detail = azure.Explain(o.Err)
	}
	if p.json {
		return p.line(cancelLine{ID: o.ID, Action: o.Action, Was: string(o.Was.Status), Detail: detail})
	}
	_, err := fmt.Fprintf(p.out, "%-9s  %s  %s\n", o.Action, plaintext.Line(o.ID), plaintext.Line(detail))
	return err
}

// cancelSummary counts the outcomes of a cancel.
type cancelSummary struct {
	Cancelled int    `json:"cancelled"`
	Over      int    `json:"over"`
	Unknown   int    `json:"unknown"`
	Refused   int    `json:"refused"`
	Failed    int    `json:"failed"`
	Error     string `json:"error,omitempty"` // why the exit code is not 0
}

func (s *cancelSummary) count(a operate.Action) {
	*map[operate.Action]*int{
		operate.Cancelled: &s.Cancelled, operate.Over: &s.Over, operate.Unknown: &s.Unknown,
		operate.Refused: &s.Refused, operate.Failed: &s.Failed,
	}[a]++
}

// cancelSummary prints the summary. It returns err, or the error of printing.
func (p *printer) cancelSummary(s *cancelSummary, err error) error {
	if !p.json {
		p.note("%d cancelled, %d over already, %d unknown, %d refused, %d failed", s.Cancelled, s.Over, s.Unknown, s.Refused, s.Failed)
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
