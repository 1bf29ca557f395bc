package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/cmd/spotctl/internal/scale"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview"
)

// scaleCommand makes the number of VMs follow the queue, once.
type scaleCommand struct {
	Set           string `help:"Scale set whose VMs to change." placeholder:"NAME" env:"-"`
	Fleet         string `help:"Compute fleet whose Spot VMs to change." placeholder:"NAME" env:"-"`
	ResourceGroup string `help:"Its resource group." default:"spotworker" placeholder:"NAME" env:"-"`
	Min           int    `help:"Fewest VMs; 0 is allowed." required:"" env:"-"`
	Max           int    `help:"Most VMs." required:"" env:"-"`
	JobsPerVM     int    `help:"Messages for each VM: a few times the jobs that it runs at once." required:"" name:"jobs-per-vm" env:"-"`
	OnDemand      bool   `help:"Count the on-demand queue, from which the set's workers take." env:"-"`
	DryRun        bool   `help:"Print the decision and the command, and change nothing." env:"-"`
}

// Help is shown by scale --help.
func (*scaleCommand) Help() string {
	return `Makes one decision, for a timer or a pipeline that runs it every few minutes. It counts the
messages on the queues of jobs, also those of running jobs, asks the Azure CLI (az) for the number of
VMs, prints the new number and the reason, and has az change it. It needs no worker, so it also starts
the first VM.

VMs are added for all messages at once. They are removed when there would still be enough for twice
the messages, and only idle ones: a VM that runs a job, starts, or has no worker that is alive stays.
From a scale set the idle VMs are deleted by name. Which VMs a fleet loses, Azure decides: their
workers hand their jobs over.

Deploy a scale set with autoscale: false, since autoscale would change the number back. The command
waits until Azure is done.

Exit codes: 0 done or nothing to do; 1 the number is as it was, or not known; 78 wrong flags.`
}

// scaleLine is a decision, in the JSON output.
type scaleLine struct {
	Name     string   `json:"name"`
	Messages int      `json:"messages"` // about
	VMs      int      `json:"vms"`
	Wanted   int      `json:"wanted"`
	Why      string   `json:"why"`
	Commands []string `json:"commands"`
	DryRun   bool     `json:"dry_run"`
}

func (c *scaleCommand) check() error {
	switch {
	case (c.Set == "") == (c.Fleet == ""):
		return errors.New("give --set or --fleet, one of them")
	case c.Min < 0 || c.Max < c.Min:
		return fmt.Errorf("--min %d and --max %d are no range: give 0 or more, and no less as --max", c.Min, c.Max)
	case c.JobsPerVM < 1:
		return fmt.Errorf("--jobs-per-vm is %d; it must be at least 1", c.JobsPerVM)
	}
	return nil
}

func (c *scaleCommand) run(ctx context.Context, s *session) error {
	if err := c.check(); err != nil {
		return &cli.ConfigError{Err: err}
	}
	target := scale.Target{Group: c.ResourceGroup, Name: c.Set + c.Fleet, Fleet: c.Fleet != ""}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	facts, err := c.facts(ctx, deployment)
	if err != nil {
		return fmt.Errorf("no decision: %w", err)
	}
	if facts.VMs, err = target.VMs(ctx); err != nil {
		return fmt.Errorf("no decision: %w", err)
	}
	wanted, why := scale.Limits{Min: c.Min, Max: c.Max, JobsPerVM: c.JobsPerVM}.Decide(facts)
	commands := target.Commands(facts, wanted)
	l := scaleLine{
		Name: target.Name, Messages: facts.Messages, VMs: facts.VMs, Wanted: wanted, Why: why, Commands: []string{}, DryRun: c.DryRun,
	}
	text := fmt.Sprintf("%s: %d VMs, stays: %s\n", l.Name, l.VMs, why)
	if wanted != facts.VMs {
		text = fmt.Sprintf("%s: %d VMs, now %d: %s\n", l.Name, l.VMs, wanted, why)
	}
	for _, command := range commands {
		l.Commands = append(l.Commands, "az "+strings.Join(command, " "))
		text += "$ " + l.Commands[len(l.Commands)-1] + "\n"
	}
	if s.printer.json {
		err = s.printer.line(l)
	} else {
		err = s.printer.text(text)
	}
	for _, command := range commands {
		if err == nil && !c.DryRun {
			_, err = scale.Run(ctx, command)
		}
	}
	return err
}

// facts reads the deployment. A queue that does not exist is an error: its messages are not known.
func (c *scaleCommand) facts(ctx context.Context, deployment *client.Client) (scale.Facts, error) {
	queues, err := deployment.Queues(ctx)
	if err != nil {
		return scale.Facts{}, err
	}
	from, messages := queues.Shards, queues.Jobs.Messages+queues.First.Messages
	if c.OnDemand {
		from, messages = []client.Queue{queues.OnDemand}, queues.OnDemand.Messages
	}
	var names []string
	for _, q := range from {
		if !q.Exists {
			return scale.Facts{}, fmt.Errorf("there is no queue %s: check --account, --prefix and --queue", q.Name)
		}
		names = append(names, q.Name)
	}
	workers, err := overview.Workers(ctx, deployment)
	if err != nil {
		return scale.Facts{}, err
	}
	prefix := ""
	if c.Set != "" {
		prefix = c.Set + "_"
	}
	return scale.Facts{Messages: messages, Idle: scale.Idle(workers, prefix, names)}, nil
}
