package activity

import (
	"testing"
	"time"
)

const every = 30 * time.Second // a reading

// TestQueueHistory: of the readings of a queue, the ones of about ten and five minutes ago are
// reported, and older ones are forgotten.
func TestQueueHistory(t *testing.T) {
	var h QueueHistory
	begun := time.Date(2026, time.March, 9, 12, 0, 0, 0, time.UTC)
	if got := h.Report(begun); len(got) != 0 {
		t.Errorf("Report of no readings = %v, want none", got)
	}
	for i := range 41 { // every 30 s
		h.Add(QueueReading{Queue: "jobs", Messages: i, At: begun.Add(time.Duration(i) * every)})
		h.Add(QueueReading{Queue: "few", Messages: 7, At: begun.Add(every)})
	}
	now := begun.Add(40 * every)
	got := h.Report(now)
	if len(got) != 2 || got[0].Messages != 38 || got[1].Messages != 39 {
		t.Errorf("Report = %v, want the readings of 60 s and 30 s ago", got)
	}
	if n := len(h.readings["jobs"]); n > 3 {
		t.Errorf("%d readings are kept, want those of about a minute", n)
	}
	want := QueueReading{Queue: "few", Messages: 7, At: begun.Add(every)}
	if got := h.Report(begun.Add(every + Earlier)); len(got) != 1 || got[0] != want {
		t.Errorf("Report = %v, want the one reading of the other queue", got)
	}
	if got := h.Report(now.Add(time.Hour)); len(got) != 0 {
		t.Errorf("Report an hour later = %v, want none", got)
	}
}
