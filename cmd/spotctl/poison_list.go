package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/overview/actions"
	"github.com/spotworker/spotworker/internal/overview/detail"
	"github.com/spotworker/spotworker/internal/overview/givenup"
	"github.com/spotworker/spotworker/internal/overview/table"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// listCommand lists the poison queue.
type listCommand struct {
	All     bool `help:"List more than the 32 messages at the front." env:"-"`
	Summary bool `help:"Count the messages by kind and reason instead; with --all all of them." env:"-"`
	filters
	Timeout time.Duration `help:"Longest time to read them." default:"5m" env:"-"`
}

// Help is shown by poison list --help.
func (*listCommand) Help() string {
	return `Without --all nothing is changed: the service shows the 32 messages at the front. Messages
behind them can only be seen by claiming them, so with --all each message is hidden from other
operators until the list is complete, for 2 minutes at most.

--summary counts reasons as one that differ only in numbers, quoted text, paths and ids.`
}

func (c *listCommand) run(ctx context.Context, s *session) error {
	deployment, err := s.client()
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	messages, about, err := c.read(ctx, deployment)
	if err != nil {
		return err
	}
	seen, filter := len(messages), c.filter(time.Now())
	messages = slices.DeleteFunc(messages, func(m client.PoisonMessage) bool { return !m.Matches(filter) })
	if c.Summary {
		err = s.printer.poisonSummary(givenup.Summarize(messages))
	} else {
		err = s.printer.poisonList(messages)
	}
	if err != nil || s.printer.json {
		return err
	}
	switch {
	case seen == 0 && about == 0:
		s.printer.note("the poison queue is empty")
	case seen > 0 && len(messages) == 0:
		s.none(ctx, fmt.Sprintf("none of %d messages matches", seen), c.Kind)
	}
	switch {
	case about <= seen:
	case seen < queue.MaxClaim || c.All:
		s.printer.note(hiddenRemark, about-seen)
	default:
		s.printer.note("these are from %d of about %d messages; --all reads the others too", seen, about)
	}
	return nil
}

// read returns the messages at the front, or all, and about how many there are.
func (c *listCommand) read(ctx context.Context, deployment *client.Client) (messages []client.PoisonMessage, about int, err error) {
	if !c.All {
		return deployment.PeekPoison(ctx)
	}
	for m, err := range deployment.ListPoison(ctx) {
		if err != nil {
			return messages, len(messages), err
		}
		messages = append(messages, m)
	}
	_, about, err = deployment.PeekPoison(ctx)
	return messages, about, err
}

// poisonList prints messages: a table, or a line of JSON for each.
func (p *printer) poisonList(messages []client.PoisonMessage) error {
	t := table.New(
		table.Column{Name: "JOB"}, table.Column{Name: "KIND", Drop: 3}, table.Column{Name: "DEAD-LETTERED", Drop: 1},
		table.Column{Name: "WORKER", Drop: 2}, table.Column{Name: "REASON", Least: 10, Middle: true},
	)
	for _, m := range messages {
		if p.json {
			if err := p.line(m); err != nil {
				return err
			}
			continue
		}
		row := []string{m.JobID, m.Kind, detail.Ago(m.GivenUpAt, time.Now()) + " ago", m.Worker, overview.LastLine(m.Reason)}
		if m.JobID == "" {
			row[0] = "message " + m.MessageID
		}
		if m.Err != nil {
			row[2], row[4] = detail.Ago(m.InsertedAt, time.Now())+" ago", m.Err.Error()
		}
		t.Add(row...)
	}
	if t.Len() == 0 {
		return nil
	}
	return p.lines(t.Lines(p.width))
}

// showCommand shows one job that was dead-lettered.
type showCommand struct {
	ID      string        `arg:"" name:"id" help:"Id of the job, or of its message, as shown by list."`
	Timeout time.Duration `help:"Longest time to read it." default:"1m" env:"-"`
}

// Help is shown by poison show --help.
func (*showCommand) Help() string {
	return `This changes nothing, unless the message is not among the 32 at the front: then all
messages are claimed to find it, as by list --all. If the job has several messages, the first one is
shown.`
}

func (c *showCommand) run(ctx context.Context, s *session) error {
	deployment, err := s.client()
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	m, err := deployment.FindPoison(ctx, c.ID)
	if errors.Is(err, client.ErrNotPoison) {
		return actions.NotPoison(c.ID)
	}
	if err != nil {
		return err
	}
	details, err := deployment.PoisonDetails(ctx, m)
	if err != nil {
		return err
	}
	return s.printer.show(m, details)
}

// show prints a message with all details.
func (p *printer) show(m client.PoisonMessage, d client.PoisonDetails) error {
	if p.json {
		more := struct {
			Record *client.Job `json:"record,omitempty"`
			Body   string      `json:"body,omitempty"` // the original message's text
		}{d.Job, d.Text}
		return p.line(m, more)
	}
	return p.pairs(rowsOf(m, d))
}

func rowsOf(m client.PoisonMessage, d client.PoisonDetails) [][2]string {
	rows := [][2]string{{"message", m.MessageID}, {"since", detail.Moment(m.InsertedAt, time.Now())}}
	if m.Err != nil {
		return append(rows, [2]string{"fault", plaintext.Line(m.Err.Error())}, [2]string{"text", shown(d.Text)})
	}
	rows = append(rows, [][2]string{
		{"job", plaintext.Line(m.JobID)}, {"kind", plaintext.Line(m.Kind)}, {"reason", plaintext.Line(m.Reason)},
		{"dead-lettered", detail.Moment(m.GivenUpAt, time.Now())},
		{"by", plaintext.Line(m.Worker)}, {"from queue", plaintext.Line(m.Queue)}, {"original message", plaintext.Line(m.OriginalID)},
	}...)
	rows = append(rows, rowsOfRecord(d.Job)...)
	e, err := queue.Decode(d.Text)
	switch data, inline := e.Payload.Inline(); {
	case d.Text == "":
		rows = append(rows, [2]string{"payload", "gone with the text of its message"})
	case err != nil:
		rows = append(rows, [2]string{"text", shown(d.Text)})
	case inline:
		rows = append(rows, [2]string{"payload", shown(string(data))})
	default:
		rows = append(rows, [2]string{"payload", fmt.Sprintf("%d bytes in a blob, SHA-256 %s", e.Payload.Ref().Size, e.Payload.Ref().SHA256)})
	}
	return rows
}

func rowsOfRecord(j *client.Job) [][2]string {
	if j == nil {
		return [][2]string{{"record", "none: a replay starts from scratch"}}
	}
	state := "none: a replay starts from scratch"
	if j.StateSize > 0 {
		state = fmt.Sprintf("%d bytes, %s done %s", j.StateSize, overview.Percent(*j), plaintext.Line(j.Text))
	}
	return [][2]string{
		{"record", string(j.Status)}, {"state", state}, {"last written by", plaintext.Line(j.Owner)},
		{"claims", fmt.Sprintf("%d, of which %d were interrupted", j.Deliveries, j.Interruptions)},
		{"failures", fmt.Sprintf("%d, of which %d in a row without progress", j.TotalFailures, j.Failures)},
		{"unclean exits", fmt.Sprintf("%d in a row", j.UncleanExits)},
		{"time so far", j.RunTime.Round(time.Millisecond).String()},
	}
}

// maxShown limits how much of a payload is shown to people, in characters.
const maxShown = 2000

func shown(text string) string { return table.Cut(plaintext.Line(text), maxShown) }

// poisonSummary prints the groups: a table, or a line of JSON for each.
func (p *printer) poisonSummary(groups []givenup.Group) error {
	t := table.New(
		table.Column{Name: "JOBS", Right: true}, table.Column{Name: "KIND"}, table.Column{Name: "WORKERS", Right: true, Drop: 3},
		table.Column{Name: "LAST", Right: true, Drop: 1}, table.Column{Name: "EXAMPLE", Drop: 2, Least: 8},
		table.Column{Name: "REASON", Least: 10, Middle: true},
	)
	for _, g := range groups {
		if p.json {
			if err := p.line(g); err != nil {
				return err
			}
			continue
		}
		t.Add(strconv.Itoa(g.Messages), g.Kind, strconv.Itoa(g.Workers), detail.Ago(g.Last, time.Now())+" ago", g.Example, g.Reason)
	}
	if t.Len() == 0 {
		return nil
	}
	return p.lines(t.Lines(p.width))
}
