package preempt

import (
	"strings"
	"testing"
	"time"
)

var self = Identity{Name: "set_1"}

// preempt returns a Scheduled eviction of this VM, in d from noon.
func preemptIn(d time.Duration) Event {
	return Event{
		ID: "P" + d.String(), Type: TypePreempt, Status: StatusScheduled, Source: SourcePlatform,
		Resources: []string{"SET_1"}, NotBefore: noon.Add(d), Duration: UnknownDuration,
	}
}

func TestBudgetOfAPreempt(t *testing.T) {
	started := preemptIn(0)
	started.Status, started.NotBefore = StatusStarted, time.Time{}
	startedEarly := preemptIn(20 * time.Second)
	startedEarly.Status = StatusStarted
	blank := preemptIn(0)
	blank.NotBefore = time.Time{}
	odd := preemptIn(7 * time.Second)
	odd.Status = "Pending"

	tests := []struct {
		name  string
		event Event
		want  time.Duration
	}{
		{"the usual notice", preemptIn(30 * time.Second), 10 * time.Second},
		{"days ahead", preemptIn(72 * time.Hour), 10 * time.Second},
		{"at the limit", preemptIn(10 * time.Second), 10 * time.Second},
		{"nearer than 10 s", preemptIn(9999 * time.Millisecond), 9999 * time.Millisecond},
		{"5 s", preemptIn(5 * time.Second), 5 * time.Second},
		{"at the least", preemptIn(2 * time.Second), 2 * time.Second},
		{"less than the least", preemptIn(1999 * time.Millisecond), 2 * time.Second},
		{"now", preemptIn(0), 2 * time.Second},
		{"past", preemptIn(-time.Hour), 2 * time.Second},
		{"time not known", blank, 10 * time.Second},
		{"unknown status", odd, 7 * time.Second},
		{"started", started, time.Second},
		{"started before its time", startedEarly, time.Second},
	}
	for _, tt := range tests {
		d := Decide(Document{Events: []Event{tt.event}}, self, noon)
		if d.Action != Drain || d.Budget != tt.want {
			t.Errorf("%s: %s within %s, want drain within %s", tt.name, d.Action, d.Budget, tt.want)
		}
		if d.Event.ID != tt.event.ID {
			t.Errorf("%s: decided by %q, want %q", tt.name, d.Event.ID, tt.event.ID)
		}
	}
}

func TestMostUrgentEventDecides(t *testing.T) {
	started := preemptIn(0)
	started.ID, started.Status = "started", StatusStarted
	reboot := Event{ID: "reboot", Type: TypeReboot, Status: StatusScheduled, Resources: []string{"set_1"}, NotBefore: noon}
	foreign := preemptIn(time.Second)
	foreign.ID, foreign.Resources = "foreign", []string{"set_2"}

	tests := []struct {
		name   string
		events []Event
		want   []string // ids of the verdicts, most urgent first
	}{
		{"later and earlier", []Event{preemptIn(8 * time.Second), preemptIn(4 * time.Second)}, []string{"P4s", "P8s"}},
		{"earlier and later", []Event{preemptIn(4 * time.Second), preemptIn(8 * time.Second)}, []string{"P4s", "P8s"}},
		{"equals stay in order", []Event{preemptIn(30 * time.Second), preemptIn(20 * time.Second)}, []string{"P30s", "P20s"}},
		{"started wins", []Event{preemptIn(0), started}, []string{"started", "P0s"}},
		{"an eviction behind maintenance", []Event{reboot, preemptIn(9 * time.Second)}, []string{"P9s", "reboot"}},
		{"another VM's does not count", []Event{foreign, reboot, preemptIn(9 * time.Second)}, []string{"P9s", "reboot"}},
	}
	for _, tt := range tests {
		d := Decide(Document{Events: tt.events}, self, noon)
		var got []string
		for _, v := range d.Verdicts {
			got = append(got, v.Event.ID)
		}
		if strings.Join(got, " ") != strings.Join(tt.want, " ") || d.Event.ID != tt.want[0] {
			t.Errorf("%s: verdicts %v decided by %s, want %v", tt.name, got, d.Event.ID, tt.want)
		}
	}
}

func TestNothingForThisVM(t *testing.T) {
	foreign := preemptIn(time.Second)
	foreign.Resources = []string{"set_2", "set_10"}
	for _, tt := range []struct {
		name   string
		doc    Document
		self   Identity
		reason string
	}{
		{"no events", Document{}, self, "no event names this VM"},
		{"withdrawn: the document that follows has none", Document{Incarnation: "9", Events: []Event{}}, self, "no event names this VM"},
		{"other VMs only", Document{Events: []Event{foreign}}, self, "no event names this VM"},
		{"name not known", Document{Events: []Event{{Type: TypeReboot, Resources: []string{"set_1"}, Source: SourcePlatform,
			NotBefore: noon.Add(time.Hour)}}}, Identity{}, "the name of this VM is not known yet"},
	} {
		d := Decide(tt.doc, tt.self, noon)
		if d.Action != CarryOn || d.Budget != 0 || len(d.Verdicts) != 0 || d.Reason != tt.reason {
			t.Errorf("%s: %+v, want to carry on because %q", tt.name, d, tt.reason)
		}
	}
}

// TestNameNotKnown: an event that would make its VM save or drain within DrainMargin
// makes every job save. A drain makes changes be saved soon, too. An event that leaves
// more time is decided again then.
func TestNameNotKnown(t *testing.T) {
	event := func(kind, status, source string, in time.Duration) Event {
		return Event{ID: "E", Type: kind, Status: status, Source: source, Resources: []string{"set_2"}, NotBefore: noon.Add(in),
			Duration: UnknownDuration}
	}
	brief := event(TypeFreeze, StatusScheduled, SourcePlatform, time.Minute)
	brief.Duration = 5 * time.Second
	for _, tt := range []struct {
		name    string
		event   Event
		saves   bool
		advised bool
		again   time.Duration
	}{
		{"eviction", event(TypePreempt, StatusScheduled, SourcePlatform, time.Hour), true, true, 0},
		{"eviction that has started", event(TypePreempt, StatusStarted, SourcePlatform, 0), true, true, 0},
		{"reboot in 8 s", event(TypeReboot, StatusScheduled, SourcePlatform, 8*time.Second), true, true, 0},
		{"reboot that has started", event(TypeReboot, StatusStarted, SourcePlatform, 0), true, true, 0},
		{"redeploy in 30 s", event(TypeRedeploy, StatusScheduled, SourcePlatform, DrainMargin), true, true, 0},
		{"redeploy in an hour", event(TypeRedeploy, StatusScheduled, SourcePlatform, time.Hour), false, false, time.Hour - DrainMargin},
		{"a person's reboot in an hour", event(TypeReboot, StatusScheduled, SourceUser, time.Hour), true, true, 0},
		{"terminate in 15 min", event(TypeTerminate, StatusScheduled, SourcePlatform, 15*time.Minute), false, false,
			15*time.Minute - DrainMargin},
		{"freeze", event(TypeFreeze, StatusScheduled, SourcePlatform, time.Hour), true, false, 0},
		{"freeze of 5 s", brief, false, false, 0},
		{"unknown type", event("Quake", StatusScheduled, SourcePlatform, time.Hour), true, false, 0},
		{"rebalance recommendation", event(TypeRebalance, StatusAdvisory, SourcePlatform, 0), true, true, 0},
	} {
		d := Decide(Document{Events: []Event{tt.event}}, Identity{}, noon)
		if saves := d.Action == CheckpointNow; saves != tt.saves || saves != (len(d.Verdicts) == 1) || d.Budget != 0 {
			t.Errorf("%s: decision = %+v, want to save: %t", tt.name, d, tt.saves)
		}
		if d.Advised() != tt.advised || d.Again != tt.again {
			t.Errorf("%s: advised = %t, again in %s, want %t and %s", tt.name, d.Advised(), d.Again, tt.advised, tt.again)
		}
		if list := d.Acknowledgements(); len(list) > 0 {
			t.Errorf("%s: acknowledgements = %+v, want none", tt.name, list)
		}
		if _, leaves := d.Departure(); leaves {
			t.Errorf("%s: is a departure, want none", tt.name)
		}
	}
	later, sooner := event(TypeReboot, StatusScheduled, SourcePlatform, time.Hour), event(TypeReboot, StatusScheduled, SourcePlatform,
		time.Minute)
	d := Decide(Document{Events: []Event{later, preemptIn(time.Second), sooner}}, Identity{}, noon)
	if len(d.Verdicts) != 1 || d.Event.Type != TypePreempt || d.Again != 30*time.Second {
		t.Errorf("decision on three events = %+v, want a checkpoint for the eviction, and the next decision in 30s", d)
	}
}
