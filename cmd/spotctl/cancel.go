package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview/actions"
	"github.com/spotworker/spotworker/internal/text/charset"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// cancelUnasked is how many jobs are cancelled without a question.
const cancelUnasked = 20

// cancelCommand cancels jobs that wait or run.
type cancelCommand struct {
	IDs []string `arg:"" optional:"" name:"id" help:"Ids of jobs; - reads them from standard input, one a line."`
	selection
	Reason  string        `help:"Why, for people; it is kept in the jobs' records." env:"-"`
	Known   bool          `help:"Leave jobs without a record alone, also those that may wait for their first worker." env:"-"`
	Bar     bool          `help:"${about_cancel_bar}" env:"-"`
	Timeout time.Duration `help:"Longest time to take; 0s is no limit." default:"1h" env:"-"`
	Yes     bool          `help:"Do not ask before more than ${unasked} jobs, or jobs of standard input or of filters." env:"-"`
}

// Help is shown by cancel --help.
func (*cancelCommand) Help() string {
	return `A waiting job is no longer started. A running job is stopped within 30 s, wherever it
is; its handler sees the reason. Nothing of it is saved or committed from the moment at which this
command reports it as cancelled; side effects that its handler has had stay. While its record is kept,
a new job can use the id of a cancelled one only with "producer put --again".

A job that no worker has claimed yet has no record, unless it is in a group: it is a message on the
queue. The service shows the 32 messages at the front and the number of all. If the job's is among
them, it is cancelled. Otherwise there is no such job, or it waits behind them: nothing is written,
and the exit code is 1. With --bar such an id gets a cancelled record: no worker starts the job if it
waits. With --known an id without a record is left alone.

With filters in place of ids all jobs that match and have not ended are cancelled, after a question
that counts them: they are found in one listing of the records. Only a group has all its jobs there:
other jobs that wait for their first worker are not selected. If a job is put in the group meanwhile,
the exit code is 1, and the command can be repeated.

A job that is done stays done. One that was dead-lettered is for "spotctl poison". After an
interruption the command can be repeated.

Exit codes: 0 all are cancelled, or with --bar barred, 1 some are not, 78 wrong flags.`
}

func (c *cancelCommand) run(ctx context.Context, s *session) error {
	switch filtered := !c.selectsAll(); {
	case len(c.IDs) == 0 && !filtered:
		return &cli.ConfigError{Err: errors.New("nothing is chosen: give ids of jobs, or filters such as --group or --kind")}
	case len(c.IDs) > 0 && filtered:
		return &cli.ConfigError{Err: errors.New("give ids of jobs or filters, not both")}
	case filtered:
		return c.runFiltered(ctx, s)
	}
	ids, err := readIDs(c.IDs, s.printer.in)
	if err != nil {
		return err
	}
	if c.mustAsk() && !c.Yes {
		if !s.printer.interactive || slices.Contains(c.IDs, "-") {
			return &cli.ConfigError{Err: fmt.Errorf("more than %d jobs, or those of standard input, are only cancelled with --yes", cancelUnasked)}
		}
		if !s.printer.ask("%s [y/N] ", actions.CancelQuestion(fmt.Sprintf("%d jobs", len(ids)))) {
			return errors.New("nothing was cancelled")
		}
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	within, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	sum, err := c.cancel(within, s, deployment, ids)
	return s.printer.summary(&sum, &sum.Error, sum.Outcome(ctx, err))
}

// cancel cancels jobs and prints each outcome.
func (c *cancelCommand) cancel(ctx context.Context, s *session, deployment *client.Client,
	ids []string) (sum actions.CancelSum, err error) {
	o := client.CancelOptions{Reason: c.Reason, KnownOnly: c.Known || len(c.IDs) == 0, SeenOnly: !c.Bar}
	err = deployment.Cancel(ctx, ids, o, func(r client.ActionResult) error {
		sum.Count(r.Action)
		return s.printer.cancelled(r)
	})
	return sum, err
}

// match lists the records.
func (c *cancelCommand) match(ctx context.Context, s *session, deployment *client.Client) (m actions.Matched, err error) {
	filter, has, err := c.filter()
	if err != nil {
		return m, err
	}
	m, err = actions.Match(ctx, deployment, filter, has)
	s.printer.skipped(m.Skipped)
	return m, err
}

// runFiltered cancels the jobs that the filters match.
func (c *cancelCommand) runFiltered(ctx context.Context, s *session) error {
	if err := actions.CheckCancelStatus(c.Status); err != nil {
		return &cli.ConfigError{Err: err}
	}
	if c.Bar || c.Known {
		return &cli.ConfigError{Err: errors.New("--bar and --known are about ids without a record, and filters match records alone")}
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	within, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	m, err := c.match(within, s, deployment)
	if err != nil {
		return err
	}
	if c.Group == "" && !s.printer.json {
		s.printer.note(actions.WithoutRecord)
	}
	if len(m.IDs) == 0 {
		return c.nothing(s.printer, &m)
	}
	if err := s.confirm(c.Yes, "cancel would hit "+m.String(), actions.CancelQuestion(m.String())); err != nil {
		return err
	}
	sum, err := c.cancel(within, s, deployment, m.IDs)
	if err = sum.Outcome(ctx, err); err == nil && c.Group != "" {
		err = c.checkAgain(within, s, deployment)
	}
	return s.printer.summary(&sum, &sum.Error, err)
}

// nothing is the end of a run whose filters match no job that has not ended.
func (c *cancelCommand) nothing(p *printer, m *actions.Matched) error {
	remark, err := m.Nothing(c.Kind, c.Group)
	if err != nil && !p.json {
		return err
	}
	if !p.json {
		p.note("%s", remark)
	}
	var sum actions.CancelSum
	return p.summary(&sum, &sum.Error, err)
}

// checkAgain lists the records again, for jobs that were put in the group meanwhile.
func (c *cancelCommand) checkAgain(ctx context.Context, s *session, deployment *client.Client) error {
	m, err := c.match(ctx, s, deployment)
	if err != nil {
		return err
	}
	return m.Meanwhile(c.Group)
}

func (c *cancelCommand) mustAsk() bool {
	return len(c.IDs) > cancelUnasked || slices.Contains(c.IDs, "-")
}

// readIDs returns the ids of the arguments, each once, and of standard input in the place of a dash.
func readIDs(given []string, in io.Reader) (ids []string, err error) {
	seen := map[string]bool{}
	add := func(id string) {
		if id != "" && !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for _, id := range given {
		if id != "-" {
			add(id)
			continue
		}
		lines := bufio.NewScanner(charset.Reader(in))
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
	return p.lines([]string{fmt.Sprintf("%-9s  %s  %s", r.Action, plaintext.Line(r.ID), plaintext.Line(r.Detail))})
}
