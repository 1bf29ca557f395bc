package preempt

import (
	"testing"
	"time"
)

// The VM's clock may be anything: only what has passed on it counts.
func TestNowIsTheServicesClock(t *testing.T) {
	local := time.Date(2019, 5, 5, 5, 5, 5, 0, time.UTC)
	doc := Document{Date: noon, ReceivedAt: local}
	for _, passed := range []time.Duration{0, 300 * time.Millisecond, 4 * time.Second} {
		want := noon.Add(passed + time.Second) // a Date may be up to a second old
		if got := doc.Now(local.Add(passed)); !got.Equal(want) {
			t.Errorf("service's clock %s after the answer = %s, want %s", passed, got, want)
		}
	}
	for _, doc := range []Document{{}, {ReceivedAt: local}, {Date: noon}} {
		if got := doc.Now(local); !got.Equal(local) {
			t.Errorf("service's clock without Date and arrival = %s, want the local %s", got, local)
		}
	}
}

func TestEventByID(t *testing.T) {
	doc := Document{Events: []Event{{ID: "A1", Type: "x"}, {ID: "b2", Type: "y"}}}
	for id, want := range map[string]string{"A1": "x", "a1": "x", "B2": "y"} {
		if e, ok := doc.Event(id); !ok || e.Type != want {
			t.Errorf("Event(%s) = %+v, %t, want that of type %s", id, e, ok, want)
		}
	}
	if e, ok := doc.Event("c3"); ok {
		t.Errorf("Event(c3) = %+v, want none", e)
	}
}

func TestSameEvents(t *testing.T) {
	base := Document{Incarnation: "3", Events: []Event{preemptIn(time.Minute)}, Date: noon}
	later := base
	later.Date = noon.Add(time.Second)
	if !base.sameEvents(later) {
		t.Error("documents that differ in Date alone are different, want the same")
	}
	renumbered, started, moved := base, base, base
	renumbered.Incarnation = "2"
	started.Events = []Event{preemptIn(time.Minute)}
	started.Events[0].Status = StatusStarted
	moved.Events = []Event{}
	for name, other := range map[string]Document{"incarnation": renumbered, "status": started, "events": moved} {
		if base.sameEvents(other) {
			t.Errorf("documents that differ in %s are the same, want different", name)
		}
	}
}
