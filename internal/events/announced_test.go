package events

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/preempt"
)

// announcements is an observer that counts announced events.
type announcements map[string]int

func (a announcements) Announced(kind, action string) { a[kind+", "+action]++ }
func (announcements) Unrecognised()                   {}
func (announcements) Acknowledged(string)             {}
func (announcements) Polled(time.Time, string)        {}

// TestReportAnnounced: an event is reported once, and again when another action
// follows from it. Events that are no longer listed are forgotten.
func TestReportAnnounced(t *testing.T) {
	got := announcements{}
	r := New(ResponderConfig{Observer: got})
	event := func(id string, a preempt.Action) preempt.Verdict {
		return preempt.Verdict{Action: a, Event: preempt.Event{ID: id, Type: preempt.TypeReboot}}
	}
	r.reportAnnounced([]preempt.Verdict{event("1", preempt.DrainBy)})
	r.reportAnnounced([]preempt.Verdict{event("1", preempt.DrainBy), event("2", preempt.DrainBy)})
	r.reportAnnounced([]preempt.Verdict{event("1", preempt.Drain)})
	if len(r.announced) != 1 {
		t.Errorf("events kept = %d, want those that are listed", len(r.announced))
	}
	unknown := preempt.Verdict{Action: preempt.CheckpointNow, Event: preempt.Event{ID: "3", Type: "Quake"}}
	r.reportAnnounced([]preempt.Verdict{event("1", preempt.Drain), unknown})
	want := announcements{"Reboot, drain by": 2, "Reboot, drain": 1, "other, checkpoint now": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}
