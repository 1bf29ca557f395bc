package events

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

// TestReport: an event is logged once, and again when it has changed. It is counted
// again only when another action follows from it. Events that are no longer listed are
// forgotten.
func TestReport(t *testing.T) {
	got := map[observe.Event]int{}
	var log bytes.Buffer
	r := New(ResponderConfig{Observe: func(e observe.Event) { got[e]++ }, Log: slog.New(slog.NewTextHandler(&log, nil))})
	event := func(id, status string, a preempt.Action) preempt.Verdict {
		return preempt.Verdict{Action: a, Event: preempt.Event{ID: id, Type: preempt.TypeReboot, Status: status}}
	}
	lines := 0
	for _, step := range []struct {
		verdicts []preempt.Verdict
		logged   int
	}{
		{[]preempt.Verdict{event("1", "Scheduled", preempt.DrainBy)}, 1},
		{[]preempt.Verdict{event("1", "Scheduled", preempt.DrainBy), event("2", "Scheduled", preempt.DrainBy)}, 1},
		{[]preempt.Verdict{event("1", "Started", preempt.DrainBy)}, 1},
		{[]preempt.Verdict{event("1", "Started", preempt.Drain)}, 1},
		{[]preempt.Verdict{event("1", "Started", preempt.Drain)}, 0},
		{[]preempt.Verdict{
			event("1", "Started", preempt.Drain),
			{Action: preempt.CheckpointNow, Event: preempt.Event{ID: "3", Type: "Quake"}},
		}, 1},
		{[]preempt.Verdict{event("2", "Scheduled", preempt.DrainBy)}, 1},
	} {
		r.report(step.verdicts)
		if len(r.reported) != len(step.verdicts) {
			t.Errorf("events kept = %d, want the %d that are listed", len(r.reported), len(step.verdicts))
		}
		lines += step.logged
		if n := strings.Count(log.String(), "scheduled event names this VM"); n != lines {
			t.Errorf("lines after %v = %d, want %d", step.verdicts, n, lines)
		}
	}
	// Decided again 5 s later, as at each change of the document, an event reads the same.
	at := time.Date(2026, time.March, 9, 12, 0, 0, 0, time.UTC)
	for i, kind := range []string{preempt.TypePreempt, preempt.TypeReboot} {
		doc := preempt.Document{Events: []preempt.Event{{ID: fmt.Sprint("again", i), Type: kind, Resources: []string{"vm"}, NotBefore: at}}}
		for _, left := range []time.Duration{28 * time.Second, 23 * time.Second} {
			r.report(preempt.Decide(doc, preempt.Identity{Name: "vm"}, at.Add(-left)).Verdicts)
		}
		lines++
		if n := strings.Count(log.String(), "scheduled event names this VM"); n != lines {
			t.Errorf("lines of an unchanged %s = %d, want %d", kind, n, lines)
		}
	}
	want := map[observe.Event]int{
		observe.Announced{Type: "Reboot", Action: "drain by"}: 3, observe.Announced{Type: "Reboot", Action: "drain"}: 2,
		observe.Announced{Type: "other", Action: "checkpoint now"}: 1, observe.Announced{Type: "Preempt", Action: "drain"}: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}
