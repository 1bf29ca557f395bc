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
		{"name not known", Document{Events: []Event{{Type: TypeReboot, Resources: []string{"set_1"}}}}, Identity{}, "the name of this VM is not known yet"},
	} {
		d := Decide(tt.doc, tt.self, noon)
		if d.Action != CarryOn || d.Budget != 0 || len(d.Verdicts) != 0 || d.Reason != tt.reason {
			t.Errorf("%s: %+v, want to carry on because %q", tt.name, d, tt.reason)
		}
	}
}

// An eviction that may be this VM's makes every job save, and nothing else.
func TestNameNotKnown(t *testing.T) {
	foreign, started := preemptIn(time.Second), preemptIn(2*time.Second)
	foreign.Resources, started.Status = []string{"set_2"}, StatusStarted
	d := Decide(Document{Events: []Event{{Type: TypeReboot}, foreign, started}}, Identity{}, noon)
	if d.Action != CheckpointNow || d.Budget != 0 || len(d.Verdicts) != 2 || d.Event.ID != foreign.ID || len(d.Acknowledgements()) != 0 {
		t.Errorf("decision without a name = %+v, want a checkpoint for each of two evictions", d)
	}
}

func TestReasonSaysWhy(t *testing.T) {
	started := preemptIn(0)
	started.Status = StatusStarted
	for want, e := range map[string]Event{
		"an eviction is announced for 2026-03-09T12:00:28Z or later, 28s from now":                       preemptIn(28 * time.Second),
		"an eviction is announced, its time is not known":                                                {Type: TypePreempt, Resources: []string{"set_1"}},
		"the eviction has started":                                                                       started,
		"Reboot is announced, its time is not known":                                                     {Type: TypeReboot, Resources: []string{"set_1"}},
		"an event without a type is not known to this version: the jobs are saved, in case it is an end": {Resources: []string{"set_1"}},
	} {
		if got := Decide(Document{Events: []Event{e}}, self, noon).Reason; got != want {
			t.Errorf("reason = %q, want %q", got, want)
		}
	}
}

func TestActionString(t *testing.T) {
	for action, want := range map[Action]string{
		CarryOn: "carry on", CheckpointNow: "checkpoint now", DrainBy: "drain by", Drain: "drain", 99: "Action(99)",
	} {
		if got := action.String(); got != want {
			t.Errorf("Action(%d).String() = %q, want %q", int(action), got, want)
		}
	}
}
