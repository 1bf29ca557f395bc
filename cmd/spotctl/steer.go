package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview/actions"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// asking are the flags of all commands that ask something of workers.
type asking struct {
	Reason string        `help:"Why, for people; workers log it." env:"-"`
	Wait   time.Duration `help:"Wait this long until the workers have done it, and fail if they have not." placeholder:"TIME" env:"-"`

	Reset bool `help:"${about_steering_reset}" env:"-"`

	Timeout time.Duration `help:"Longest time to ask them; --wait comes after that." default:"1m" env:"-"`
}

func (a *asking) options() client.SteerOptions {
	return client.SteerOptions{Reason: a.Reason, Reset: a.Reset}
}

// targets are the flags that select workers.
type targets struct {
	Names []string `arg:"" optional:"" name:"worker" help:"Names of workers, or of their VMs."`
	All   bool     `help:"All workers, also those that start later." env:"-"`
}

// check refuses no choice, and names with --all.
func (t *targets) check() error {
	switch {
	case len(t.Names) == 0 && !t.All:
		return &cli.ConfigError{Err: errors.New("nothing is chosen: give names of workers, or --all")}
	case len(t.Names) > 0 && t.All:
		return &cli.ConfigError{Err: errors.New("--all means every worker: leave the names out")}
	}
	return nil
}

type drainCommand struct {
	targets
	asking
	Finish bool          `help:"First let running jobs end; no new one is claimed." env:"-"`
	Within time.Duration `help:"With --finish: drain after this time at the latest." default:"30m" env:"-"`
	Yes    bool          `help:"Do not ask before --all." env:"-"`
}

// Help is shown by drain --help.
func (*drainCommand) Help() string {
	return `A drained worker does what it does on an eviction notice, without one: it stops claiming,
saves its jobs and hands them over to other workers. It stays alive and idle, also after a restart,
until "spotctl resume". It follows within 15 s, and has the drain budget of a SIGTERM (10 s).

With --finish it lets its jobs end first, for kinds that cannot save.

With --all no job of the deployment runs. Workers that cannot read the request do not follow; the output
names them.`
}

func (c *drainCommand) run(ctx context.Context, s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.All {
		if err := s.confirm(c.Yes, "--all stops all work of the deployment", actions.DrainAllQuestion); err != nil {
			return err
		}
	}
	o := c.options()
	if c.Finish {
		if c.Within <= 0 {
			return &cli.ConfigError{Err: fmt.Errorf("--within is %s: give the time that jobs have to end", c.Within)}
		}
		o.Finish = c.Within
	}
	return s.ask(ctx, "drain", c.asking, func(ctx context.Context, d *client.Client) (client.Steered, error) {
		return d.Drain(ctx, c.Names, o)
	})
}

type resumeCommand struct {
	targets
	asking
	Paused bool     `help:"End all pauses, also of single kinds." env:"-"`
	Kinds  []string `name:"kind" help:"End the pause of this kind; may be repeated." placeholder:"KIND" sep:"none" env:"-"`
}

// Help is shown by resume --help.
func (*resumeCommand) Help() string {
	return `Ends what "spotctl drain", "spotctl quarantine" and "spotctl pause" began: with names the drains of
workers and the quarantines of VMs, with --all all drains, with --paused all pauses, with --kind the
pause of a kind. A quarantine is of a sick VM, and ends only by its name.`
}

func (c *resumeCommand) run(ctx context.Context, s *session) error {
	if !c.Paused && len(c.Kinds) == 0 {
		if err := c.check(); err != nil {
			return err
		}
	} else if c.All || len(c.Names) > 0 || c.Paused && len(c.Kinds) > 0 {
		return &cli.ConfigError{Err: errors.New("--paused ends all pauses, --kind those of kinds: give one of them, and no workers")}
	}
	return s.ask(ctx, "resume", c.asking, func(ctx context.Context, d *client.Client) (client.Steered, error) {
		if c.Paused || len(c.Kinds) > 0 {
			return d.Unpause(ctx, c.Kinds, c.options())
		}
		return d.Resume(ctx, c.Names, c.options())
	})
}

type pauseCommand struct {
	asking
	Kinds   []string `name:"kind" help:"Only jobs of this kind; may be repeated." placeholder:"KIND" sep:"none" env:"-"`
	Unknown bool     `help:"Also kinds that no worker has, for workers that start later." env:"-"`
	Yes     bool     `help:"Do not ask." env:"-"`
}

// Help is shown by pause --help.
func (*pauseCommand) Help() string {
	return `No worker of the deployment claims messages until "spotctl resume --paused", also none that starts
later. Jobs that run continue to their end.

With --kind only jobs of that kind are not started. Their messages stay on the queue: workers that
claim one hide it for about a minute, again and again, so a long backlog of a paused kind costs
calls.

A kind that no heartbeat lists is probably misspelt: nothing is paused, and the exit code is 1. With
--unknown it is paused all the same.`
}

func (c *pauseCommand) run(ctx context.Context, s *session) error {
	what, question := "pause stops all claiming", actions.PauseQuestion
	if len(c.Kinds) > 0 {
		what, question = "pause stops all jobs of a kind", actions.PauseKindsQuestion(c.Kinds)
	}
	if err := s.confirm(c.Yes, what, question); err != nil {
		return err
	}
	return s.ask(ctx, "pause", c.asking, func(ctx context.Context, d *client.Client) (client.Steered, error) {
		o := c.options()
		o.KnownOnly = !c.Unknown
		asked, err := d.Pause(ctx, c.Kinds, o)
		return asked, withUnknownFlag(err, "it is paused", "nothing was paused")
	})
}

type quarantineCommand struct {
	VMs []string `arg:"" name:"vm" help:"Names of VMs, as shown by workers."`
	asking
	Unknown bool `help:"Also VMs on which no worker has started, for workers that start there later." env:"-"`
}

// Help is shown by quarantine --help.
func (*quarantineCommand) Help() string {
	return `For a VM that is sick: all workers on it are drained, also one that starts there later,
until "spotctl resume" with its name. "spotctl drain" with the VM's name drains only the workers that run there now.
Workers that cannot read the request do not follow; the output names them.

A VM without a heartbeat is probably misspelt: no VM is quarantined, and the exit code is 1. With
--unknown it is quarantined all the same, before its first worker starts.`
}

func (c *quarantineCommand) run(ctx context.Context, s *session) error {
	return s.ask(ctx, "quarantine", c.asking, func(ctx context.Context, d *client.Client) (client.Steered, error) {
		o := c.options()
		o.KnownOnly = !c.Unknown
		asked, err := d.Quarantine(ctx, c.VMs, o)
		return asked, withUnknownFlag(err, "it is quarantined", "nothing was quarantined")
	})
}

// withUnknownFlag adds to the error of a name that no heartbeat has what follows from it.
func withUnknownFlag(err error, then, now string) error {
	return actions.NotDone(err, now, fmt.Sprintf(". With --unknown %s all the same, for workers that start later", then))
}

// confirm asks a question unless yes is set. Without a terminal it refuses.
func (s *session) confirm(yes bool, what, question string) error {
	switch {
	case yes:
		return nil
	case !s.printer.interactive:
		return &cli.ConfigError{Err: fmt.Errorf("%s: give --yes too", what)}
	case !s.printer.ask("%s [y/N] ", question):
		return errors.New("nothing was changed")
	}
	return nil
}

// askedLine is the request and the workers that it went to, in the JSON output.
type askedLine struct {
	Action    string   `json:"action"`
	Revision  int      `json:"revision"`            // of the control document
	Workers   []string `json:"workers"`             // that run and are concerned
	Unsteered []string `json:"unsteered,omitempty"` // of them, that cannot read the request
	Damaged   string   `json:"damaged,omitempty"`   // the blob with the document that was replaced
	Done      *bool    `json:"done,omitempty"`      // with --wait
	Error     string   `json:"error,omitempty"`
}

// ask asks something of workers, and waits for them if that is wanted.
func (s *session) ask(ctx context.Context, action string, flags asking, do func(context.Context, *client.Client) (client.Steered,
	error)) error {
	if err := actions.CheckReason(flags.Reason); err != nil {
		return &cli.ConfigError{Err: err}
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	within, cancel := withTimeout(ctx, flags.Timeout)
	defer cancel()
	asked, err := do(within, deployment)
	if asked.Damaged != "" && !s.printer.json {
		s.printer.note("the control document was damaged and is replaced: pauses, drains and quarantines of before have ended; "+
			"the damaged one is kept in the container %s as %s", s.flags.Names().Control, asked.Damaged)
	}
	if err != nil {
		return err
	}
	line := askedLine{
		Action: action, Revision: asked.Revision,
		Workers: asked.Workers, Unsteered: asked.Unsteered, Damaged: asked.Damaged,
	}
	if !s.printer.json {
		for _, note := range actions.AskedNotes(action, s.flags.Names().Control, asked) {
			s.printer.note("%s", note)
		}
	}
	if flags.Wait > 0 {
		err = s.waitFollowed(ctx, deployment, asked, flags.Wait)
		line.Done = new(err == nil)
	}
	if !s.printer.json {
		return err
	}
	if err != nil {
		line.Error = azure.Explain(err)
	}
	return errors.Join(err, s.printer.line(line))
}

// waitFollowed waits until the workers have followed the request, and reports how many have.
func (s *session) waitFollowed(ctx context.Context, deployment *client.Client, asked client.Steered, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	last := -1
	return deployment.WaitFollowed(ctx, asked, func(left []string) {
		if len(left) != last && !s.printer.json {
			s.printer.note("%d of %d workers have done it", len(asked.Workers)-len(left), len(asked.Workers))
		}
		last = len(left)
	})
}
