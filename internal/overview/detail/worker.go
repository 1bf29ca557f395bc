package detail

import (
	"fmt"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// WorkerRows returns the names and values of a worker for people.
func WorkerRows(w client.Worker, now time.Time) [][2]string {
	rows := [][2]string{
		{"worker", plaintext.Line(w.Name)}, {"VM", plaintext.Line(strings.Trim(w.VM+", "+Machine(w), ", "))},
		{"state", fmt.Sprintf("%s (%s)", plaintext.Line(w.State), w.Life())}, {"asked", plaintext.Line(w.Asked)},
		{"version", plaintext.Line(w.Version)},
		{"started", Moment(w.StartedAt, now)}, {"heartbeat", overview.Span(w.Age) + " ago"},
		{"queues", plaintext.Line(strings.Join(w.Queues, ", "))}, {"kinds", plaintext.Line(strings.Join(w.Kinds, ", "))},
	}
	if e := w.LastEvent; e != nil {
		rows = append(rows, [2]string{"last event", fmt.Sprintf("%s %s, seen %s, response: %s", plaintext.Line(e.Type), plaintext.Line(e.Status),
			Moment(e.SeenAt, now), plaintext.Line(e.Action))})
	}
	if d := w.LastDrain; d != nil {
		rows = append(rows, [2]string{"last drain", fmt.Sprintf("%s, ended %s: of %d jobs %d were done and %d handed over (%d without their "+
			"last progress), %d left, in %s of %s",
			plaintext.Line(d.Reason), Moment(d.EndedAt, now), d.Jobs, d.Done, d.Released, d.LeftOut, d.Left, d.Took.Round(time.Millisecond),
			d.Budget)})
	}
	rows = append(rows, [2]string{"jobs", fmt.Sprint(w.Jobs)})
	for _, id := range w.JobIDs {
		rows = append(rows, [2]string{"", plaintext.Line(id)})
	}
	if hidden := w.Jobs - len(w.JobIDs); hidden > 0 {
		rows = append(rows, [2]string{"", fmt.Sprintf("and %d more", hidden)})
	}
	return rows
}

// Machine returns the size and the zone of a worker's VM for people, as far as they are known.
func Machine(w client.Worker) string {
	var known []string
	if w.VMSize != "" {
		known = append(known, w.VMSize)
	}
	if w.Zone != "" {
		known = append(known, "zone "+w.Zone)
	}
	return strings.Join(known, ", ")
}
