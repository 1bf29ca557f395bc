package main

import (
	"context"
	"time"

	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/table"
)

// listCommand lists the poison queue.
type listCommand struct {
	All bool `help:"List more than the 32 messages at the front." env:"-"`
}

// Help is shown by poison list --help.
func (*listCommand) Help() string {
	return `Without --all nothing is changed: the service shows the 32 messages at the front. Messages behind them can only be seen by claiming them, so with --all each message is hidden from other operators until the list is complete, for 2 minutes at most.`
}

func (c *listCommand) run(ctx context.Context, s *session) error {
	poison, err := s.poisonQueue("")
	if err != nil {
		return err
	}
	list := s.printer.list()
	if c.All {
		if err := poison.All(ctx, list.add); err != nil {
			return err
		}
		return list.end(list.n)
	}
	items, about, err := poison.Peek(ctx)
	if err != nil {
		return err
	}
	for _, it := range items {
		if err := list.add(it); err != nil {
			return err
		}
	}
	return list.end(about)
}

// find returns the first message with that job or message id: from those at the
// front, which changes nothing, or else from all.
func find(ctx context.Context, poison *operate.PoisonQueue, name string) (found *operate.Item, err error) {
	selection := operate.Selection{Names: []string{name}}
	match := func(it operate.Item) error {
		if selected, _ := selection.Has(it); selected && found == nil {
			found = &it
		}
		return nil
	}
	items, about, err := poison.Peek(ctx)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		_ = match(it) // never fails
	}
	if found == nil && about > len(items) {
		err = poison.All(ctx, match)
	}
	return found, err
}

// itemLine is a message, in the JSON output.
type itemLine struct {
	ID         string     `json:"id,omitempty"` // of the job; empty if unknown
	Kind       string     `json:"kind,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	PoisonedAt *time.Time `json:"poisoned_at,omitempty"`
	Worker     string     `json:"worker,omitempty"`
	Origin     string     `json:"origin,omitempty"` // the queue that it was on
	Message    string     `json:"message"`          // id on the poison queue
	Original   string     `json:"original_message,omitempty"`
	InsertedAt time.Time  `json:"inserted_at"`
	Fault      string     `json:"fault,omitempty"` // why it is not a poison message
}

func lineOf(it operate.Item) itemLine {
	p := it.Poison
	l := itemLine{
		ID: p.ID, Kind: p.Kind, Reason: p.Reason, Worker: p.Worker, Origin: p.Origin,
		Message: it.MessageID, Original: p.MessageID, InsertedAt: it.InsertedAt.UTC(),
	}
	if it.Fault != nil {
		l.Fault = it.Fault.Error()
		return l
	}
	at := p.PoisonedAt.UTC()
	l.PoisonedAt = &at
	return l
}

// list prints messages: a table, or a line of JSON for each.
type list struct {
	printer *printer
	table   *table.Table
	n       int
}

func (p *printer) list() *list {
	return &list{printer: p, table: table.New(
		table.Column{Name: "JOB"}, table.Column{Name: "KIND", Drop: 3}, table.Column{Name: "GIVEN UP", Drop: 1},
		table.Column{Name: "WORKER", Drop: 2}, table.Column{Name: "REASON", Least: 10},
	)}
}

func (l *list) add(it operate.Item) error {
	l.n++
	if l.printer.json {
		return l.printer.line(lineOf(it))
	}
	p := it.Poison
	row := []string{p.ID, p.Kind, ago(p.PoisonedAt, time.Now()) + " ago", p.Worker, p.Reason}
	if p.ID == "" {
		row[0] = "message " + it.MessageID
	}
	if it.Fault != nil {
		row[2], row[4] = ago(it.InsertedAt, time.Now())+" ago", it.Fault.Error()
	}
	l.table.Add(row...)
	return nil
}

// end prints the table. about is the approximate number of messages.
func (l *list) end(about int) error {
	if l.printer.json {
		return nil
	}
	if l.n == 0 {
		l.printer.note("the poison queue is empty")
		return nil
	}
	if err := l.printer.lines(l.table.Lines(l.printer.width)); err != nil {
		return err
	}
	if about > l.n {
		l.printer.note("these are %d of about %d messages; --all lists the others too", l.n, about)
	}
	return nil
}
