package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// shardsCommand shows or sets over how many queues the jobs are spread.
type shardsCommand struct {
	Number int           `arg:"" optional:"" help:"${about_shards_number}"`
	Wait   time.Duration `help:"Longest time to wait until the queues are empty that are to be left; 0s is no limit." default:"10m" env:"-"`
}

// Help is shown by shards --help.
func (*shardsCommand) Help() string {
	return `One queue lets about 2,000 messages a second through, which some 950 short jobs a second
use up. More take more queues. The first is the queue of jobs itself, the others have -1, -2 …
behind its name. The number is in the metadata of the first. Workers and producers read it each
minute and spread jobs by their ids.

To fewer queues, jobs are first put over fewer and still taken from all. When the others have been
empty for 75 s, jobs are taken from fewer too: the command waits for that, and repeating it
continues. The queues that are left then can be deleted.

Where infra/bicep makes the queues, set its parameters queueShards and queueShardsTaken instead:
they give the identities their roles, and the next deployment would undo what this command sets.

To change it takes Storage Queue Data Contributor, on the account where queues are missing. Exit
codes: 0 done, 1 not or not entirely, 78 wrong flags.`
}

// shardLine is a queue of jobs, in the JSON output.
type shardLine struct {
	Name     string `json:"name"`
	Exists   bool   `json:"exists"`
	Messages int    `json:"messages"` // about
	Put      bool   `json:"put"`      // jobs are put on it
	Workers  *int   `json:"workers"`  // alive, that take from it; null if they could not be read
}

func (c *shardsCommand) run(ctx context.Context, s *session) error {
	if c.Number < 0 || c.Number > queue.MaxShards {
		return &cli.ConfigError{Err: fmt.Errorf("%d queues are out of range: give 1 to %d", c.Number, queue.MaxShards)}
	}
	if c.Wait < 0 {
		return &cli.ConfigError{Err: fmt.Errorf("--wait is %s; it must not be negative", c.Wait)}
	}
	if c.Number > 0 {
		return c.resize(ctx, s)
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	queues, err := deployment.Queues(ctx)
	if err != nil {
		return err
	}
	if !queues.Jobs.Exists {
		return fmt.Errorf("there is no queue %s: check --account, --prefix and --queue; the deployment and the next put create it",
			queues.Jobs.Name)
	}
	workers, workersErr := overview.Workers(ctx, deployment)
	if !s.printer.json {
		if workersErr != nil {
			s.printer.note("workers not read: %v", workersErr)
		}
		return s.printer.shards(queues, workers, workersErr == nil)
	}
	for i, q := range queues.Shards {
		l := shardLine{Name: q.Name, Exists: q.Exists, Messages: q.Messages, Put: i < queues.PutOver}
		if workersErr == nil {
			l.Workers = new(takers(workers, q.Name))
		}
		if err := s.printer.line(l); err != nil {
			return err
		}
	}
	return nil
}

// takers counts the workers that are alive and take from a queue.
func takers(workers []client.Worker, name string) (n int) {
	for _, w := range workers {
		if w.Life() == client.Alive && (len(w.Queues) == 0 || slices.Contains(w.Queues, name)) { // an old version names none
			n++
		}
	}
	return n
}

// shards prints the queues of jobs.
func (p *printer) shards(queues client.Queues, workers []client.Worker, known bool) error {
	t := p.table()
	fmt.Fprintf(t, "QUEUE\tMESSAGES\tJOBS ARE PUT\tWORKERS\n")
	for i, q := range queues.Shards {
		messages, put, taken := fmt.Sprint(q.Messages), "yes", "?"
		if !q.Exists {
			messages = "does not exist"
		}
		if i >= queues.PutOver {
			put = "no"
		}
		if known {
			taken = fmt.Sprint(takers(workers, q.Name))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", plaintext.Line(q.Name), messages, put, taken)
	}
	return t.Flush()
}

// resize changes the number of queues.
func (c *shardsCommand) resize(ctx context.Context, s *session) error {
	stores, err := s.flags.Open(parallelCalls, version)
	if err != nil {
		return err
	}
	last := -1
	err = operate.Resize(ctx, stores.Jobs, c.Number, c.Wait, func(messages int) {
		if messages != last {
			s.printer.note("waiting until the queues that are left have been empty for 75 s: about %d messages", messages)
		}
		last = messages
	})
	switch {
	case errors.Is(err, operate.ErrShardsInUse):
		return fmt.Errorf("%w, or had within the last 75 s; no job is lost, repeat the command to finish", err)
	case err != nil:
		return err
	}
	s.printer.note("jobs are put over %d queues and taken from %d; workers and producers that run follow within 75 s",
		stores.Jobs.Counts().Put, stores.Jobs.Counts().Taken)
	return nil
}
