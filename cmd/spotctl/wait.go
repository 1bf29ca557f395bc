package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/producer"
)

// waitCommand waits for jobs.
type waitCommand struct {
	IDs     []string      `arg:"" optional:"" name:"id" help:"Ids of jobs; - reads them from standard input, one on a line."`
	Group   string        `help:"All jobs of this group, also jobs that are put in it meanwhile." placeholder:"NAME" env:"-"`
	Timeout time.Duration `help:"Longest time to wait; 0s is no limit." default:"0s" env:"-"`
	Quiet   bool          `short:"q" help:"Print no results." env:"-"`
}

// Help is shown by wait --help.
func (*waitCommand) Help() string {
	return `Waits until the jobs have ended, and prints each result as its job ends, as result does for
several jobs. On a terminal a bar shows how far all of them are, by their own reports.

A job without a record is waited for: it may be on the queue. The exit code is 1 if a job ended
without a result or --timeout came first. An interruption affects no job.`
}

func (c *waitCommand) run(ctx context.Context, s *session) error {
	if (c.Group == "") == (len(c.IDs) == 0) {
		return &cli.ConfigError{Err: errors.New("give ids of jobs, or --group")}
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	within, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	ids, err := c.ids(within, s.printer.in, deployment)
	if err != nil {
		return err
	}
	bar := newJobBar(s.printer, ids)
	report := endReport{printer: s.printer}
	pending := map[string]bool{}
	for _, id := range ids {
		pending[id] = true
	}
	err = func() error {
		defer bar.clear()
		outcomes := deployment.WaitMany(within, ids, client.WaitOptions{Progress: bar.progress})
		if c.Group != "" {
			outcomes = deployment.WaitGroup(within, c.Group, client.WaitOptions{Progress: bar.progress})
		}
		for outcome, err := range outcomes {
			if err != nil {
				return err
			}
			delete(pending, outcome.Job.ID)
			bar.ended(outcome.Job.ID)
			if c.Quiet && outcome.Err == nil {
				continue
			}
			bar.clear()
			if err := report.add(outcome.Job.ID, outcome.Result, outcome.Err); err != nil {
				return err
			}
		}
		return nil
	}()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted; the jobs continue: %s", some(ids, pending))
	case errors.Is(err, errTimeout):
		return fmt.Errorf("waited for %s; these jobs have not ended: %s%s", c.Timeout, some(ids, pending), producer.UnreadRemark(err))
	case err != nil:
		return err
	}
	return report.end()
}

// ids returns the given ids, the ids on standard input, or the ids of the group.
func (c *waitCommand) ids(ctx context.Context, in *bufio.Reader, deployment *client.Client) ([]string, error) {
	if c.Group != "" {
		jobs, err := deployment.Group(ctx, c.Group)
		if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
			err = fmt.Errorf("--timeout %s was too short to list the jobs of group %s; they continue", c.Timeout, c.Group)
		}
		ids := make([]string, len(jobs))
		for i, j := range jobs {
			ids[i] = j.ID
		}
		return ids, err
	}
	ids, err := readIDs(c.IDs, in)
	if err == nil && len(ids) == 0 {
		err = &cli.ConfigError{Err: errors.New("standard input has no ids")}
	}
	return ids, err
}

// some names the first of the pending jobs.
func some(ids []string, pending map[string]bool) string {
	const named = 5
	var names []string
	for _, id := range ids {
		if pending[id] && len(names) < named {
			names = append(names, id)
		}
	}
	text := strings.Join(names, ", ")
	if more := len(pending) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
