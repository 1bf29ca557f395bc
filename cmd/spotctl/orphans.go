package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/overview/actions"
	"github.com/spotworker/spotworker/internal/overview/table"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/text/charset"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// orphansCommands are the commands on jobs whose messages may be lost.
type orphansCommands struct {
	List    orphansListCommand    `cmd:"" help:"${about_orphans_list}"`
	Requeue orphansRequeueCommand `cmd:"" help:"${about_orphans_requeue}"`
}

// idleFlag sets how long a record must not have been written.
type idleFlag struct {
	Idle    time.Duration `help:"${about_orphans_idle}" default:"1h" env:"-"`
	Timeout time.Duration `help:"Longest time to look for them." default:"5m" env:"-"`
}

const orphansHelp = `A message can be lost: somebody cleared the queue, or a tool put it with a time
to live. A worker that runs the job detects this and puts a new message; a job that only waited
stays open, without a message on any queue.

Queues cannot be searched. The service shows the 32 messages at the front of a queue, and no hidden
ones, such as those of running jobs, of failed jobs that wait for a retry and of jobs put back. If
the queues hold more messages than were seen, a listed job may have a message nevertheless. A second
message does no harm: the job's record admits one, and the other is put back until the job has
ended.`

// orphansListCommand lists orphans.
type orphansListCommand struct{ idleFlag }

// Help is shown by orphans list --help.
func (*orphansListCommand) Help() string { return orphansHelp + " Nothing is changed." }

func (c *orphansListCommand) run(ctx context.Context, s *session) error {
	_, report, err := s.findOrphans(ctx, c.idleFlag)
	if err != nil {
		return err
	}
	return s.printer.printOrphans(report)
}

// orphansRequeueCommand puts new messages for orphans.
type orphansRequeueCommand struct {
	idleFlag
	IDs      []string `arg:"" optional:"" name:"id" help:"Ids of jobs, as shown by list."`
	All      bool     `help:"All jobs that list shows." env:"-"`
	Yes      bool     `help:"Do it. Without this flag nothing is changed." env:"-"`
	OnDemand bool     `help:"Put the messages on the on-demand queue. A record does not contain the queue that its job was on." env:"-"`
	Payload  string   `help:"${about_orphans_requeue_payload}" placeholder:"FILE" env:"-"`
	Inputs   string   `help:"${about_orphans_requeue_inputs}" placeholder:"FILE" env:"-"`
}

// Help is shown by orphans requeue --help.
func (*orphansRequeueCommand) Help() string {
	return orphansHelp + `

Settings that only the old message had are lost: limits (max_run, max_silence) and trace.`
}

// validate returns the error in the flags.
func (c *orphansRequeueCommand) validate() error {
	switch {
	case len(c.IDs) == 0 && !c.All:
		return &cli.ConfigError{Err: errors.New("nothing is chosen: give ids, or --all")}
	case len(c.IDs) > 0 && c.All:
		return &cli.ConfigError{Err: errors.New("--all means every job: leave the ids out")}
	case c.Payload != "" && len(c.IDs) != 1:
		return &cli.ConfigError{Err: errors.New("--payload is for one job: give its id")}
	case c.Inputs != "" && len(c.IDs) != 1:
		return &cli.ConfigError{Err: errors.New("--inputs is for one job: give its id")}
	case c.Inputs == "-" && c.Payload == "-":
		return &cli.ConfigError{Err: errors.New("--payload and --inputs cannot both be read from standard input: give a file for one of them")}
	}
	return nil
}

func (c *orphansRequeueCommand) run(ctx context.Context, s *session) error {
	if err := c.validate(); err != nil {
		return err
	}
	deployment, report, err := s.findOrphans(ctx, c.idleFlag)
	if err != nil {
		return err
	}
	chosen, missing := c.choose(report.Jobs)
	options, err := c.options(s.printer.in)
	if err != nil {
		return err
	}
	sum := actions.RequeueSum{NotFound: missing, DryRun: !c.Yes}
	for _, o := range chosen {
		if ctx.Err() != nil {
			err = errors.New("interrupted; what was begun is finished, the rest is unchanged")
			break
		}
		if err := s.requeue(context.WithoutCancel(ctx), deployment, o, options, &sum); err != nil {
			return err
		}
	}
	return s.printer.requeued(&sum, report, err)
}

// choose returns the selected orphans, and the ids that match none.
func (c *orphansRequeueCommand) choose(all []client.Orphan) (chosen []client.Orphan, missing []string) {
	if c.All {
		return all, nil
	}
	for _, id := range c.IDs {
		i := slices.IndexFunc(all, func(o client.Orphan) bool { return o.Job.ID == id })
		if i < 0 {
			missing = append(missing, id)
			continue
		}
		chosen = append(chosen, all[i])
	}
	return chosen, missing
}

// options returns the options of the requeue, with the files that flags name.
func (c *orphansRequeueCommand) options(in io.Reader) (o client.RequeueOptions, err error) {
	o.OnDemand = c.OnDemand
	if o.Payload, err = readFile(c.Payload, in); err != nil {
		return o, fmt.Errorf("read the payload: %w", err)
	}
	if o.Inputs, err = readFile(c.Inputs, in); err != nil {
		return o, fmt.Errorf("read the inputs: %w", err)
	}
	o.Inputs = charset.Text(o.Inputs)
	return o, nil
}

// readFile reads a flag's file, or standard input; nothing if the flag is not given.
func readFile(name string, in io.Reader) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	return io.ReadAll(io.LimitReader(in, queue.MaxPayload+1))
}

// findOrphans connects to the deployment and looks for orphans.
func (s *session) findOrphans(ctx context.Context, f idleFlag) (*client.Client, *client.Orphans, error) {
	if f.Idle < 0 {
		return nil, nil, &cli.ConfigError{Err: errors.New("--idle must not be negative")}
	}
	deployment, err := s.client()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := withTimeout(ctx, f.Timeout)
	defer cancel()
	report, err := deployment.Orphans(ctx, f.Idle)
	return deployment, report, err
}

// orphanLine is a job without a message, in the JSON output.
type orphanLine struct {
	ID          string    `json:"id"`
	Kind        string    `json:"kind,omitempty"`
	Status      string    `json:"status"`
	IdleSeconds float64   `json:"idle_seconds"`
	ModifiedAt  time.Time `json:"modified_at"`
	Fraction    float64   `json:"fraction"`
	Owner       string    `json:"owner,omitempty"`
	Message     string    `json:"message"`          // none, or unseen if one may be hidden
	Payload     string    `json:"payload"`          // stored, or gone with the message; unknown without the inputs
	Inputs      string    `json:"inputs,omitempty"` // stored, or gone with the message; nothing for a job without inputs
}

func orphanLineOf(o client.Orphan, complete bool) orphanLine {
	r := o.Job
	l := orphanLine{
		ID: r.ID, Kind: r.Kind, Status: string(r.Status), IdleSeconds: o.Idle.Seconds(), ModifiedAt: r.UpdatedAt.UTC(),
		Fraction: r.Fraction, Owner: r.Owner, Message: "unseen", Payload: "gone",
	}
	if complete {
		l.Message = "none"
	}
	if o.HasPayload {
		l.Payload = "stored"
	}
	switch {
	case !o.HasInputs:
		l.Payload, l.Inputs = "unknown", "gone"
	case o.Inputs != nil:
		l.Inputs = "stored"
	}
	return l
}

// printOrphans prints a report: a table, or a line of JSON for each job.
func (p *printer) printOrphans(s *client.Orphans) error {
	t := table.New(
		table.Column{Name: "JOB"}, table.Column{Name: "KIND", Drop: 3}, table.Column{Name: "STATUS"}, table.Column{Name: "IDLE", Drop: 1},
		table.Column{Name: "DONE", Drop: 4}, table.Column{Name: "MESSAGE"}, table.Column{Name: "PAYLOAD", Drop: 2},
		table.Column{Name: "INPUTS", Drop: 2}, table.Column{Name: "LAST WRITER", Drop: 5, Least: 10},
	)
	for _, o := range s.Jobs {
		l := orphanLineOf(o, s.Complete())
		if p.json {
			if err := p.line(l); err != nil {
				return err
			}
			continue
		}
		t.Add(l.ID, l.Kind, l.Status, overview.Span(o.Idle), fmt.Sprintf("%.0f%%", l.Fraction*100), l.Message, l.Payload, l.Inputs, l.Owner)
	}
	if p.json {
		return nil
	}
	p.coverage(s)
	if t.Len() == 0 {
		p.note("no jobs without a message were found")
		return nil
	}
	return p.lines(t.Lines(p.width))
}

// coverage prints how much of the queues was seen.
func (p *printer) coverage(s *client.Orphans) {
	if text := actions.Coverage(s); text != "" {
		p.note("%s", text)
	}
}

// requeue requeues one job and prints the action; without --yes it only prints it.
func (s *session) requeue(ctx context.Context, deployment *client.Client, o client.Orphan, options client.RequeueOptions,
	sum *actions.RequeueSum) error {
	var r client.ActionResult
	if sum.DryRun {
		r = s.wouldRequeue(ctx, deployment, o, options)
	} else {
		r = deployment.Requeue(ctx, o, options)
	}
	sum.Count(r.Action)
	if s.printer.json {
		return s.printer.line(struct {
			ID     string        `json:"id"`
			Action client.Action `json:"action"`
			Detail string        `json:"detail,omitempty"`
		}{o.Job.ID, r.Action, r.Detail})
	}
	line := fmt.Sprintf("%-8s  %s  %s", r.Action, plaintext.Line(o.Job.ID), plaintext.Line(r.Detail))
	return s.printer.lines([]string{line})
}

// wouldRequeue returns the action that a requeue of a job would take.
func (s *session) wouldRequeue(ctx context.Context, deployment *client.Client, o client.Orphan,
	options client.RequeueOptions) client.ActionResult {
	if err := deployment.CheckRequeue(ctx, o, options); err != nil {
		return client.ActionResult{Action: client.Refused, Detail: err.Error()}
	}
	to := s.flags.Names().Queue
	if options.OnDemand {
		to = s.flags.Names().OnDemand
	}
	return client.ActionResult{Action: actions.WouldRequeue, Detail: "a new message on " + to}
}

// requeued prints the summary, and returns the error to exit with.
func (p *printer) requeued(sum *actions.RequeueSum, report *client.Orphans, err error) error {
	err = sum.Outcome(err)
	if !p.json {
		p.coverage(report)
		if sum.DryRun {
			p.note("dry run: %d would be requeued, %d refused; nothing was changed, give --yes to do it", sum.Requeued, sum.Refused)
			return err
		}
	}
	return p.summary(sum, &sum.Error, err)
}
