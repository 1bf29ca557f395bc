package main

import (
	"cmp"
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
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/deployment"
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
minute and spread jobs by their ids; one that does not know it, such as an older version, uses the
first queue alone.

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
	Put      *bool  `json:"put"`      // jobs are put on it; null if the first account could not be read
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
	unread, err := someUnread(err)
	if err != nil {
		return err
	}
	workers, workersErr := overview.Workers(ctx, deployment)
	first := s.flags.Names().Queue // of the account that has the number of accounts
	putKnown := slices.ContainsFunc(queues.Shards, func(q client.Queue) bool { return q.Name == first })
	if !s.printer.json {
		if workersErr != nil {
			s.printer.note("workers not read: %v", workersErr)
		}
		return cmp.Or(s.printer.shards(queues, workers, workersErr == nil, putKnown), unread)
	}
	for i, q := range queues.Shards {
		l := shardLine{Name: q.Name, Exists: q.Exists, Messages: q.Messages}
		if putKnown {
			l.Put = new(i < queues.PutOver)
		}
		if workersErr == nil {
			l.Workers = new(takers(workers, q.Name))
		}
		if err := s.printer.line(l); err != nil {
			return err
		}
	}
	return unread
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
func (p *printer) shards(queues client.Queues, workers []client.Worker, known, putKnown bool) error {
	t := p.table()
	fmt.Fprintf(t, "QUEUE\tMESSAGES\tJOBS ARE PUT\tWORKERS\n")
	for i, q := range queues.Shards {
		messages, put, taken := fmt.Sprint(q.Messages), "yes", "?"
		if !q.Exists {
			messages = "does not exist"
		}
		switch {
		case !putKnown:
			put = "?"
		case i >= queues.PutOver:
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
	var failed []error
	for _, in := range stores.Accounts { // as many in each account
		if err := c.resizeIn(ctx, s, in, len(stores.Accounts) > 1); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		err := failed[0]
		for _, other := range failed[1:] {
			err = fmt.Errorf("%w; %w", err, other)
		}
		if len(failed) < len(stores.Accounts) {
			err = fmt.Errorf("%w; the other accounts have %d, and no job is lost: repeat the command to finish", err, c.Number)
		}
		return err
	}
	s.printer.note("jobs are put over %d queues and taken from %d; workers and producers that run follow within 75 s",
		stores.Jobs.Counts().Put, stores.Jobs.Counts().Taken)
	return nil
}

// resizeIn changes the number of queues in one account, perhaps of several.
func (c *shardsCommand) resizeIn(ctx context.Context, s *session, in *deployment.Stores, several bool) error {
	last := -1
	err := operate.Resize(ctx, in.Jobs, c.Number, c.Wait, func(messages int) {
		if messages != last {
			s.printer.note("waiting until the queues that are left have been empty for 75 s: about %d messages", messages)
		}
		last = messages
	})
	if errors.Is(err, operate.ErrShardsInUse) {
		err = fmt.Errorf("%w, or had within the last 75 s; no job is lost, repeat the command to finish", err)
	}
	if err != nil && several {
		return fmt.Errorf("storage account %s: %s", in.Account.Name(), azure.Explain(err))
	}
	return err
}
