package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/plaintext"
	"github.com/spotworker/spotworker/internal/queue"
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

// showCommand shows one job that was given up.
type showCommand struct {
	ID string `arg:"" name:"id" help:"Id of the job, or of its message, as shown by list."`
}

// Help is shown by poison show --help.
func (*showCommand) Help() string {
	return `This changes nothing, unless the message is not among the 32 at the front: then all messages are claimed to find it, as by list --all. If the job has several messages, the first one is shown.`
}

func (c *showCommand) run(ctx context.Context, s *session) error {
	poison, err := s.poisonQueue("")
	if err != nil {
		return err
	}
	it, err := find(ctx, poison, c.ID)
	if err != nil {
		return err
	}
	if it == nil {
		return fmt.Errorf("the poison queue has no message of %s", c.ID)
	}
	text, record, err := poison.Lookup(ctx, *it)
	if err != nil {
		return err
	}
	return s.printer.show(*it, text, record)
}

// recordLine is a job's record, in the JSON output.
type recordLine struct {
	Status        checkpoint.Status `json:"status"`
	Generation    int               `json:"generation"`
	Failures      int               `json:"failures"`
	ChargedExits  int               `json:"silent_ends"`
	EarlyExits    int               `json:"early_ends"`
	Interruptions int               `json:"interruptions"`
	RunSeconds    float64           `json:"paid_seconds"`
	Fraction      float64           `json:"fraction"`
	Text          string            `json:"text,omitempty"`
	StateBytes    int64             `json:"state_bytes"`
	Owner         string            `json:"owner,omitempty"`
	Reason        string            `json:"reason,omitempty"`
	CreatedAt     time.Time         `json:"created_at"`
	EndedAt       time.Time         `json:"ended_at"`
}

// showLine is a message with all details, in the JSON output.
type showLine struct {
	itemLine
	Record *recordLine `json:"record,omitempty"`
	Body   string      `json:"body,omitempty"` // the original message's text
}

// show prints a message with all details.
func (p *printer) show(it operate.Item, text string, r *checkpoint.Record) error {
	if p.json {
		l := showLine{itemLine: lineOf(it), Body: text}
		if r != nil {
			l.Record = &recordLine{
				Status: r.Status, Generation: r.Generation, Failures: r.Failures, ChargedExits: r.ChargedExits, EarlyExits: r.EarlyExits,
				Interruptions: r.Interruptions, RunSeconds: r.RunTime.Seconds(), Fraction: r.Fraction, Text: r.Text,
				StateBytes: r.StateSize, Owner: r.Owner, Reason: r.Reason, CreatedAt: r.CreatedAt, EndedAt: r.EndedAt,
			}
		}
		return p.line(l)
	}
	return p.pairs(rowsOf(it, text, r))
}

func rowsOf(it operate.Item, text string, r *checkpoint.Record) [][2]string {
	m := it.Poison
	rows := [][2]string{{"message", it.MessageID}, {"since", moment(it.InsertedAt, time.Now())}}
	if it.Fault != nil {
		return append(rows, [2]string{"fault", plaintext.Line(it.Fault.Error())}, [2]string{"text", shown(text)})
	}
	rows = append(rows, [][2]string{
		{"job", plaintext.Line(m.ID)}, {"kind", plaintext.Line(m.Kind)}, {"reason", plaintext.Line(m.Reason)}, {"given up", moment(m.PoisonedAt, time.Now())},
		{"by", plaintext.Line(m.Worker)}, {"from queue", plaintext.Line(m.Origin)}, {"original message", plaintext.Line(m.MessageID)},
	}...)
	rows = append(rows, rowsOfRecord(r)...)
	e, err := queue.Decode(text)
	switch data, inline := e.Payload.Inline(); {
	case text == "":
		rows = append(rows, [2]string{"payload", "gone with the text of its message"})
	case err != nil:
		rows = append(rows, [2]string{"text", shown(text)})
	case inline:
		rows = append(rows, [2]string{"payload", shown(string(data))})
	default:
		rows = append(rows, [2]string{"payload", fmt.Sprintf("%d bytes in a blob, SHA-256 %s", e.Payload.Ref().Size, e.Payload.Ref().SHA256)})
	}
	return rows
}

func rowsOfRecord(r *checkpoint.Record) [][2]string {
	if r == nil {
		return [][2]string{{"record", "none: a replay starts from scratch"}}
	}
	state := "none: a replay starts from scratch"
	if r.HasState() {
		state = fmt.Sprintf("%d bytes, %.0f %% done %s", r.StateSize, r.Fraction*100, plaintext.Line(r.Text))
	}
	return [][2]string{
		{"record", string(r.Status)}, {"state", state}, {"last written by", plaintext.Line(r.Owner)},
		{"claims", fmt.Sprintf("%d, of which %d were interrupted", r.Generation, r.Interruptions)},
		{"in a row", fmt.Sprintf("%d failures, %d unclean exits", r.Failures, r.UncleanExits())},
		{"time so far", r.RunTime.Round(time.Millisecond).String()},
	}
}

// maxShown limits how much of a payload is shown to people, in characters.
const maxShown = 2000

func shown(text string) string { return table.Cut(plaintext.Line(text), maxShown) }

func moment(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s ago)", t.UTC().Format(time.RFC3339), ago(t, now))
}
