package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/plaintext"
)

// itemLine is a message, as a script reads it.
type itemLine struct {
	ID         string     `json:"id,omitempty"` // the job's, if it is known
	Kind       string     `json:"kind,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	PoisonedAt *time.Time `json:"poisoned_at,omitempty"`
	Worker     string     `json:"worker,omitempty"`
	Origin     string     `json:"origin,omitempty"` // the queue it was on
	Message    string     `json:"message"`          // id on the poison queue
	Original   string     `json:"original_message,omitempty"`
	InsertedAt time.Time  `json:"inserted_at"`
	Fault      string     `json:"fault,omitempty"` // why it is no poison message
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

// list prints messages: a table, or a line for each.
type list struct {
	*printer
	rows [][]string
	n    int
}

func (p *printer) list() *list {
	return &list{printer: p, rows: [][]string{{"JOB", "KIND", "GIVEN UP", "WORKER", "REASON"}}}
}

func (l *list) add(it operate.Item) error {
	l.n++
	if l.json {
		return l.line(lineOf(it))
	}
	p := it.Poison
	row := []string{p.ID, p.Kind, ago(p.PoisonedAt, time.Now()) + " ago", p.Worker, p.Reason}
	if p.ID == "" {
		row[0] = "message " + it.MessageID
	}
	if it.Fault != nil {
		row[2], row[4] = ago(it.InsertedAt, time.Now())+" ago", it.Fault.Error()
	}
	for i, cell := range row {
		row[i] = plaintext.Line(cell)
		if row[i] == "" {
			row[i] = "-"
		}
	}
	l.rows = append(l.rows, row)
	return nil
}

// end prints the table. about is how many messages there are.
func (l *list) end(about int) error {
	if l.json {
		return nil
	}
	if l.n == 0 {
		l.note("the poison queue is empty")
		return nil
	}
	l.fit()
	t := tabwriter.NewWriter(l.out, 0, 0, 2, ' ', 0)
	for _, row := range l.rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if about > l.n {
		l.note("these are %d of about %d; --all lists the others too", l.n, about)
	}
	return nil
}

// leastReason is what is left of a reason on a narrow terminal, in columns.
const leastReason = 20

// fit cuts the reasons, so that a row is a line on the terminal.
func (l *list) fit() {
	if l.width == 0 {
		return
	}
	room := l.width
	for column := range len(l.rows[0]) - 1 {
		widest := 0
		for _, row := range l.rows {
			widest = max(widest, len([]rune(row[column])))
		}
		room -= widest + 2
	}
	for _, row := range l.rows {
		last := len(row) - 1
		row[last] = cut(row[last], max(room, leastReason))
	}
}
