package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/plaintext"
)

// statusCommand shows the deployment at one moment.
type statusCommand struct {
	Timeout time.Duration `help:"Longest time to read it." default:"1m" env:"-"`
}

// Help is shown by status --help.
func (*statusCommand) Help() string {
	return `Lines that begin with ! are what to look at first; they also say what operators ask of the workers, such as a pause. Waiting jobs are counted from the queues, about, since queues cannot be searched; all other jobs by their records. The time left is an estimate from the job's own fraction and its run time.

A screen costs one call for each 5,000 jobs that have a record and for each 5,000 workers, three for the queues and one for what operators ask; with more than 5,000 jobs that is read only if a heartbeat reports something or no worker is alive. What cannot be read is left out and named, and the exit code is 1.`
}

func (c *statusCommand) run(ctx context.Context, s *session) error {
	deployment, err := s.client()
	if err != nil {
		return err
	}
	found, err := snapshot(ctx, deployment, c.Timeout)
	if err != nil {
		return err
	}
	if s.printer.json {
		err = s.printer.line(statusLineOf(&found))
	} else {
		err = s.printer.lines(overview.Draw(found, s.printer.width, 0))
	}
	if err == nil && len(found.Faults) > 0 {
		err = errors.New("a part of the deployment could not be read; see above")
	}
	return err
}

// topCommand shows the deployment live.
type topCommand struct {
	Every time.Duration `help:"Time between two reads, at least 1s." default:"5s" env:"-"`
}

// Help is shown by top --help.
func (*topCommand) Help() string {
	return `Shows what status shows, again and again, until q is pressed. r reads at once. Each read costs what status costs.`
}

func (c *topCommand) run(ctx context.Context, s *session) error {
	switch {
	case c.Every < time.Second:
		return &cli.ConfigError{Err: fmt.Errorf("--every is %s; it must be at least 1s", c.Every)}
	case s.printer.json:
		return &cli.ConfigError{Err: errors.New("top is for people: use status -o json")}
	case !s.printer.live():
		return &cli.ConfigError{Err: errors.New("top needs a terminal as input and output: use status")}
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	return overview.Watch(ctx, os.Stdin, os.Stdout, s.title(), c.Every, func(ctx context.Context) (overview.Snapshot, error) {
		return snapshot(ctx, deployment, time.Minute)
	})
}

// snapshot reads the deployment, with errors in words.
func snapshot(ctx context.Context, deployment *client.Client, timeout time.Duration) (overview.Snapshot, error) {
	ctx, cancel := withTimeout(ctx, timeout)
	defer cancel()
	found, err := overview.Read(ctx, deployment)
	for i, fault := range found.Faults {
		found.Faults[i].Err = errors.New(azure.Explain(fault.Err))
	}
	if err != nil {
		err = errors.New(azure.Explain(err))
	}
	return found, err
}

// title names the deployment.
func (s *session) title() string {
	if s.flags.Account == "" {
		return s.flags.Prefix
	}
	return s.flags.Prefix + " on " + s.flags.Account
}

// errTimeout ends a command after its --timeout.
var errTimeout = errors.New("it took longer than --timeout allows")

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, d, errTimeout)
}

// statusLine is the deployment, in the JSON output.
type statusLine struct {
	At       time.Time `json:"at"`
	Problems []string  `json:"problems"`

	// A part that could not be read is left out.
	Waiting *int                 `json:"waiting,omitempty"` // about
	Jobs    map[string]int       `json:"jobs,omitempty"`    // by status
	Done    *int                 `json:"done_last_hour,omitempty"`
	Queues  map[string]queueLine `json:"queues,omitempty"`
	Workers []workerLine         `json:"workers,omitzero"`
	Running []jobLine            `json:"running,omitzero"`
}

// queueLine is a queue, in the JSON output.
type queueLine struct {
	Name     string `json:"name"`
	Messages int    `json:"messages"` // about
}

func statusLineOf(s *overview.Snapshot) statusLine {
	l := statusLine{At: s.At.UTC(), Problems: []string{}}
	for _, problem := range s.Problems() {
		l.Problems = append(l.Problems, plaintext.Line(problem))
	}
	if s.Has(overview.PartJobs) {
		l.Jobs, l.Done, l.Running = map[string]int{}, new(s.Jobs.DoneRecently), []jobLine{}
		for _, status := range statuses {
			l.Jobs[string(status)] = s.Jobs.ByStatus[status]
		}
		for _, j := range s.Jobs.Running {
			l.Running = append(l.Running, jobLineOf(j))
		}
	}
	if s.Has(overview.PartQueues) {
		l.Queues = map[string]queueLine{}
		for name, q := range map[string]client.Queue{"jobs": s.Queues.Jobs, "ondemand": s.Queues.OnDemand, "poison": s.Queues.Poison} {
			l.Queues[name] = queueLine{Name: q.Name, Messages: q.Messages}
		}
	}
	if s.Has(overview.PartWorkers) {
		l.Workers = []workerLine{}
		for _, w := range s.Workers {
			l.Workers = append(l.Workers, workerLineOf(w))
		}
		if l.Queues != nil {
			l.Waiting = new(s.Waiting())
		}
	}
	return l
}
