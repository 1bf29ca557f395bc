package preempt

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// event returns a Scheduled event of the platform for this VM, in d from noon.
func event(kind string, d time.Duration, changes ...func(*Event)) Event {
	e := Event{
		ID: kind, Type: kind, Status: StatusScheduled, Source: SourcePlatform,
		Resources: []string{"set_1"}, NotBefore: noon.Add(d), Duration: UnknownDuration,
	}
	for _, change := range changes {
		change(&e)
	}
	return e
}

func started(e *Event)                     { e.Status, e.NotBefore = StatusStarted, time.Time{} }
func byUser(e *Event)                      { e.Source = SourceUser }
func withoutTime(e *Event)                 { e.NotBefore = time.Time{} }
func asAdvisory(e *Event)                  { e.Status = StatusAdvisory }
func withStatus(s string) func(*Event)     { return func(e *Event) { e.Status = s } }
func withSource(s string) func(*Event)     { return func(e *Event) { e.Source = s } }
func lasting(d time.Duration) func(*Event) { return func(e *Event) { e.Duration = d } }
func naming(vms ...string) func(*Event)    { return func(e *Event) { e.Resources = vms } }
func called(id string) func(*Event)        { return func(e *Event) { e.ID = id } }

// TestJudge is the table of events: one row for each thing that an event can say.
func TestJudge(t *testing.T) {
	const ack, noAck = true, false
	type want struct {
		action Action
		budget time.Duration
		ack    bool
	}
	type row struct {
		name  string
		event Event
		want  want
	}
	rows := []row{
		{"preempt", event(TypePreempt, 30*time.Second), want{Drain, 10 * time.Second, noAck}},
		{"preempt, started", event(TypePreempt, 0, started), want{Drain, time.Second, noAck}},
		{"preempt, whatever its status", event(TypePreempt, 5*time.Second, asAdvisory), want{Drain, 5 * time.Second, noAck}},
		{"preempt by a person", event(TypePreempt, 30*time.Second, byUser), want{Drain, 10 * time.Second, noAck}},

		{"freeze of 0 s", event(TypeFreeze, 15*time.Minute, lasting(0)), want{CarryOn, 0, ack}},
		{"freeze of 7 s", event(TypeFreeze, 15*time.Minute, lasting(7*time.Second)), want{CarryOn, 0, ack}},
		{"freeze of just under 9 s", event(TypeFreeze, 15*time.Minute, lasting(9*time.Second-1)), want{CarryOn, 0, ack}},
		{"freeze of 9 s", event(TypeFreeze, 15*time.Minute, lasting(9*time.Second)), want{CheckpointNow, 0, ack}},
		{"freeze of a minute", event(TypeFreeze, 15*time.Minute, lasting(time.Minute)), want{CheckpointNow, 0, ack}},
		{"freeze of unknown length", event(TypeFreeze, 15*time.Minute), want{CheckpointNow, 0, ack}},
		{"freeze asked for by a person", event(TypeFreeze, 15*time.Minute, byUser), want{CheckpointNow, 0, ack}},
		{"freeze without a time", event(TypeFreeze, 0, withoutTime, lasting(time.Second)), want{CarryOn, 0, ack}},
		{"short freeze, started", event(TypeFreeze, 0, started, lasting(time.Second)), want{CarryOn, 0, noAck}},
		{"long freeze, started", event(TypeFreeze, 0, started, lasting(time.Minute)), want{CheckpointNow, 0, noAck}},

		{"rebalance recommendation", event(TypeRebalance, 0, asAdvisory), want{CheckpointNow, 0, noAck}},
		{"rebalance recommendation without a time", event(TypeRebalance, 0, asAdvisory, withoutTime), want{CheckpointNow, 0, noAck}},
		{"rebalance recommendation with another status", event(TypeRebalance, time.Hour), want{CheckpointNow, 0, noAck}},
		{"any advice", event("Other", 0, asAdvisory), want{CheckpointNow, 0, noAck}},

		{"unknown type", event("Hibernate", time.Hour), want{CheckpointNow, 0, noAck}},
		{"unknown type, started", event("Hibernate", 0, started), want{CheckpointNow, 0, noAck}},
		{"unknown type by a person", event("Hibernate", time.Hour, byUser), want{CheckpointNow, 0, noAck}},
		{"no type", event("", time.Hour), want{CheckpointNow, 0, noAck}},
	}
	for _, kind := range []string{TypeTerminate, TypeReboot, TypeRedeploy} {
		for _, r := range []row{
			{"in 15 min", event(kind, 15*time.Minute), want{DrainBy, 15 * time.Minute, ack}},
			{"in 7 days", event(kind, 7*24*time.Hour), want{DrainBy, 7 * 24 * time.Hour, ack}},
			{"in just over 30 s", event(kind, 30*time.Second+1), want{DrainBy, 30*time.Second + 1, ack}},
			{"in 30 s", event(kind, 30*time.Second), want{Drain, 10 * time.Second, ack}},
			{"in 6 s", event(kind, 6*time.Second), want{Drain, 6 * time.Second, ack}},
			{"now", event(kind, 0), want{Drain, 2 * time.Second, ack}},
			{"overdue", event(kind, -time.Hour), want{Drain, 2 * time.Second, ack}},
			{"at a time not known", event(kind, 0, withoutTime), want{Drain, 10 * time.Second, ack}},
			{"started", event(kind, 0, started), want{Drain, time.Second, noAck}},
			{"started before its time", event(kind, time.Hour, withStatus(StatusStarted)), want{Drain, time.Second, noAck}},
			{"unknown status", event(kind, time.Hour, withStatus("Pending")), want{DrainBy, time.Hour, ack}},
			{"advised", event(kind, time.Hour, asAdvisory), want{CheckpointNow, 0, noAck}},
			{"by a person, in 15 min", event(kind, 15*time.Minute, byUser), want{Drain, 10 * time.Second, ack}},
			{"by a person, in 6 s", event(kind, 6*time.Second, byUser), want{Drain, 6 * time.Second, ack}},
			{"by a person, at a time not known", event(kind, 0, byUser, withoutTime), want{Drain, 10 * time.Second, ack}},
			{"by a person, started", event(kind, 0, byUser, started), want{Drain, time.Second, noAck}},
			{"by an unknown source", event(kind, time.Hour, withSource("")), want{DrainBy, time.Hour, ack}},
			{"of a length not known or known", event(kind, time.Hour, lasting(time.Second)), want{DrainBy, time.Hour, ack}},
		} {
			r.name = kind + " " + r.name
			rows = append(rows, r)
		}
	}
	for _, r := range rows {
		d := Decide(Document{Events: []Event{r.event}}, self, noon)
		if got := (want{d.Action, d.Budget, d.Acknowledge}); got != r.want {
			t.Errorf("%s: decision = %+v, want %+v", r.name, got, r.want)
		}
		if len(d.Verdicts) != 1 || d.Event.ID != r.event.ID || d.Reason == "" {
			t.Errorf("%s: %+v, want one verdict about the event, with its reason", r.name, d)
		}
		if got, want := d.Advised(), r.event.Type == TypeRebalance || r.event.Type != TypePreempt &&
			r.event.Status == StatusAdvisory; got != want {
			t.Errorf("%s: advised = %t, want %t", r.name, got, want)
		}
	}
}

// acks names the acknowledgements of a decision, as in "Reboot after drain".
func acks(d Decision) []string {
	var list []string
	for _, a := range d.Acknowledgements() {
		list = append(list, fmt.Sprintf("%s after %s", a.Event.ID, a.After))
	}
	return list
}

// TestTogether: the events of one document are handled together.
func TestTogether(t *testing.T) {
	const quarter, days = 15 * time.Minute, 72 * time.Hour
	freeze := event(TypeFreeze, quarter, lasting(time.Minute))
	blip := event(TypeFreeze, quarter, lasting(0), called("blip"))
	advice := event(TypeRebalance, 0, asAdvisory)
	reboot := event(TypeReboot, quarter)
	redeploy := event(TypeRedeploy, days)
	restart := event(TypeReboot, quarter, byUser, called("restart"))
	eviction := event(TypePreempt, 30*time.Second)
	foreign := event(TypeReboot, 0, started, naming("set_10", "other_1", "set"))
	shared := event(TypeReboot, quarter, naming("set_0", "SET_1", "set_2"))
	over := event(TypeReboot, 0, started)

	tests := []struct {
		name   string
		events []Event
		action Action
		budget time.Duration
		by     string // the event that decides
		leaves string // the event that takes the VM away, with time
		acks   []string
	}{
		{"nothing", nil, CarryOn, 0, "", "", nil},
		{"a freeze and a blip", []Event{blip, freeze}, CheckpointNow, 0, TypeFreeze, "",
			[]string{"Freeze after checkpoint now", "blip after carry on"}},
		{"advice and a freeze", []Event{advice, freeze}, CheckpointNow, 0, TypeRebalance, "", []string{"Freeze after checkpoint now"}},
		{"a freeze before a reboot", []Event{freeze, reboot}, DrainBy, quarter, TypeReboot, TypeReboot,
			[]string{"Reboot after drain by", "Freeze after checkpoint now"}},
		{"one after the other", []Event{redeploy, reboot}, DrainBy, quarter, TypeReboot, TypeReboot,
			[]string{"Reboot after drain by", "Redeploy after drain by"}},
		{"a person's reboot before one in days", []Event{redeploy, restart}, Drain, DrainBudget, "restart", TypeRedeploy,
			[]string{"restart after drain", "Redeploy after drain"}},
		{"an eviction before a reboot in days", []Event{redeploy, eviction, blip}, Drain, DrainBudget, TypePreempt, TypeRedeploy,
			[]string{"Redeploy after drain", "blip after drain"}},
		{"an eviction while a reboot has started", []Event{eviction, over}, Drain, StartedBudget, TypePreempt, "", nil},
		{"another impact while one has started", []Event{over, event(TypeFreeze, 0, started, lasting(5*time.Second))},
			Drain, StartedBudget, TypeReboot, "", nil},
		{"another VM's reboot does not count", []Event{foreign, blip}, CarryOn, 0, "blip", "", []string{"blip after carry on"}},
		{"named with others, in another case", []Event{shared}, DrainBy, quarter, TypeReboot, TypeReboot, []string{"Reboot after drain by"}},
	}
	for _, tt := range tests {
		d := Decide(Document{Events: tt.events}, self, noon)
		if d.Action != tt.action || d.Budget != tt.budget || d.Event.ID != tt.by {
			t.Errorf("%s: %s within %s by %q, want %s within %s by %q", tt.name, d.Action, d.Budget, d.Event.ID, tt.action, tt.budget, tt.by)
		}
		if v, ok := d.Departure(); v.Event.ID != tt.leaves || ok != (tt.leaves != "") {
			t.Errorf("%s: departure for %q, want %q", tt.name, v.Event.ID, tt.leaves)
		}
		if diff := cmp.Diff(tt.acks, acks(d)); diff != "" {
			t.Errorf("%s: acknowledgements (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestMaintenanceOfAScaleSetInTurns: serialized operations, as this VM sees them. It
// reacts to its own turn alone, for any events of the others, and a repeated document
// changes nothing.
func TestMaintenanceOfAScaleSetInTurns(t *testing.T) {
	theirs, ours := naming("set_0"), naming("SET_1", "set_2")
	reboot := func(of func(*Event), changes ...func(*Event)) []Event {
		return []Event{event(TypeReboot, 15*time.Minute, append(changes, of)...)}
	}
	for _, tt := range []struct {
		name   string
		events []Event
		action Action
		budget time.Duration
	}{
		{"the turn of another", reboot(theirs), CarryOn, 0},
		{"which has started", reboot(theirs, started), CarryOn, 0},
		{"the turn of this VM", reboot(ours), DrainBy, 15 * time.Minute},
		{"the same document again", reboot(ours), DrainBy, 15 * time.Minute},
		{"which has started", reboot(ours, started), Drain, StartedBudget},
		{"a second, shorter impact while it has", []Event{event(TypeReboot, 0, ours, started, lasting(2*time.Second))}, Drain, StartedBudget},
		{"a freeze in place of the reboot", []Event{event(TypeFreeze, 0, ours, started, lasting(2*time.Second))}, CarryOn, 0},
		{"both turns in one document", append(reboot(theirs, started), reboot(ours)...), DrainBy, 15 * time.Minute},
		{"the turn of the next", reboot(naming("set_10")), CarryOn, 0},
		{"names no VM", reboot(naming()), CarryOn, 0},
	} {
		d := Decide(Document{Incarnation: "7", Events: tt.events}, self, noon)
		if d.Action != tt.action || d.Budget != tt.budget {
			t.Errorf("%s: %s within %s, want %s within %s", tt.name, d.Action, d.Budget, tt.action, tt.budget)
		}
	}
}

// TestUnknownFields: an answer of a later version is decided by the fields that it shares
// with this one.
func TestUnknownFields(t *testing.T) {
	doc, err := parseDocument([]byte(`{"DocumentIncarnation":5,"Region":"x","Events":[
		{"EventId":"A","EventType":"reboot","EventStatus":"scheduled","EventSource":"PLATFORM","ResourceType":"VirtualMachine",
		 "Resources":["SET_1"],"NotBefore":"Mon, 9 Mar 2026 13:00:00 GMT","DurationInSeconds":-1,"Severity":{"Level":3}},
		{"EventId":"B","EventType":"SpotRebalanceRecommendation","EventStatus":"Advisory","Resources":["set_1"],"NotBefore":""},
		{"EventId":"C","EventType":"Freeze","EventStatus":"Scheduled","Resources":["set_1"],"NotBefore":"soon","DurationInSeconds":5}]}`))
	if err != nil {
		t.Fatal(err)
	}
	d := Decide(doc, self, noon)
	if d.Action != DrainBy || d.Budget != time.Hour || d.Event.ID != "A" || !d.Advised() {
		t.Errorf("decision = %s within %s by %s, advised = %t, want drain by within 1h by A, true", d.Action, d.Budget, d.Event.ID, d.Advised())
	}
	if diff := cmp.Diff([]string{"A after drain by", "C after carry on"}, acks(d)); diff != "" {
		t.Errorf("acknowledgements (-want +got):\n%s", diff)
	}
}

func TestLeave(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		4 * time.Minute: DrainBudget, DrainMargin: DrainBudget, 5 * time.Second: 5 * time.Second, 0: MinBudget, -time.Hour: MinBudget,
	} {
		v := verdictOn(event(TypeReboot, time.Hour), noon).Leave(left)
		if v.Action != Drain || v.Budget != want || v.Event.ID != TypeReboot {
			t.Errorf("Leave(%s) = %+v, want to drain within %s", left, v, want)
		}
	}
}
