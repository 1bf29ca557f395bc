package imds

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The bubble's clock starts at 2000-01-01 00:00:00 UTC.

func TestDocumentIsWrittenAsTheServiceWritesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := unlimited()
		vm := s.AddVM(VM{Name: "WestNO_0", ScaleSet: "WestNO"})
		if got, want := mustSend(t, vm, "GET", eventsPath, "").body, `{"DocumentIncarnation":1,"Events":[]}`; got != want {
			t.Errorf("document without events = %s, want %s", got, want)
		}

		s.Schedule(Event{
			ID:          "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
			Type:        "Freeze",
			Resources:   []string{"WestNO_0", "WestNO_1"},
			Description: "Paused for <5 s>.",
			Duration:    5 * time.Second,
		})
		r := mustSend(t, vm, "GET", eventsPath, "")
		want := `{"DocumentIncarnation":2,"Events":[{"EventId":"C7061BAC-AFDC-4513-B24B-AA5F13A16123",` +
			`"EventStatus":"Scheduled","EventType":"Freeze","ResourceType":"VirtualMachine",` +
			`"Resources":["WestNO_0","WestNO_1"],"NotBefore":"Sat, 01 Jan 2000 00:15:00 GMT",` +
			`"Description":"Paused for <5 s>.","EventSource":"Platform","DurationInSeconds":5}]}`
		if r.body != want {
			t.Errorf("document =\n%s\nwant\n%s", r.body, want)
		}
		if got, want := r.header.Get("Date"), "Sat, 01 Jan 2000 00:00:00 GMT"; got != want {
			t.Errorf("Date = %q, want %q", got, want)
		}
		if got, want := r.header.Get("Content-Type"), "application/json; charset=utf-8"; got != want {
			t.Errorf("Content-Type = %q, want %q", got, want)
		}
	})
}

func TestSimulatedEvictionHasTheRealShape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := unlimited()
		vm := s.AddVM(VM{Name: "set_3", ScaleSet: "set"})
		id, err := s.SimulateEviction("SET_3")
		if err != nil {
			t.Fatal(err)
		}
		want := documentJSON{DocumentIncarnation: 2, Events: []eventJSON{{
			EventID:           id,
			EventStatus:       "Scheduled",
			EventType:         "Preempt",
			ResourceType:      "VirtualMachine",
			Resources:         []string{"set_3"},
			NotBefore:         "Sat, 01 Jan 2000 00:00:30 GMT",
			Description:       new(""),
			EventSource:       new("Platform"),
			DurationInSeconds: new(-1),
		}}}
		if diff := cmp.Diff(want, document(t, vm)); diff != "" {
			t.Errorf("document (-want +got):\n%s", diff)
		}

		time.Sleep(30*time.Second - time.Nanosecond)
		if got := document(t, vm).Events[0].EventStatus; got != "Scheduled" {
			t.Errorf("status just before NotBefore = %s, want Scheduled", got)
		}
		time.Sleep(time.Nanosecond)
		want.DocumentIncarnation = 3
		want.Events[0].EventStatus, want.Events[0].NotBefore = "Started", ""
		if diff := cmp.Diff(want, document(t, vm)); diff != "" {
			t.Errorf("document at NotBefore (-want +got):\n%s", diff)
		}
		if e, _ := s.Event(id); e.StartedAt.Sub(e.ScheduledAt) != 30*time.Second {
			t.Errorf("started %s after it was listed, want 30s", e.StartedAt.Sub(e.ScheduledAt))
		}
	})
}

func TestOnlySpotVMsAreEvicted(t *testing.T) {
	s := New(Options{})
	regular := s.AddVM(VM{Name: "regular", Priority: "Regular"})
	for _, name := range []string{"regular", "absent"} {
		if id, err := s.SimulateEviction(name); err == nil {
			t.Errorf("SimulateEviction(%s) = %s, want an error", name, id)
		}
	}
	if n := len(document(t, regular).Events); n != 0 {
		t.Errorf("%d events after refused evictions, want 0", n)
	}
}

func TestIncarnationRisesWithEveryChangeAndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := unlimited()
		vm := s.AddVM(VM{Name: "a"})
		reboot := func() string {
			return s.Schedule(Event{Type: "Reboot", Resources: []string{"a"}, NotBefore: time.Now().Add(time.Hour)})
		}
		id := reboot()
		steps := []struct {
			name   string
			do     func() bool
			did    bool
			status string // of the event; "" if it is gone
			rise   int
		}{
			{"read", func() bool { return true }, true, "Scheduled", 0},
			{"start", func() bool { return s.Start(id) }, true, "Started", 1},
			{"start again", func() bool { return s.Start(id) }, true, "Started", 0},
			{"withdraw what has started", func() bool { return s.Withdraw(id) }, false, "Started", 0},
			{"complete", func() bool { return s.Complete(id) }, true, "", 1},
			{"complete again", func() bool { return s.Complete(id) }, false, "", 0},
			{"start what is over", func() bool { return s.Start(id) }, false, "", 0},
			{"list another", func() bool { id = reboot(); return true }, true, "Scheduled", 1},
			{"NotBefore passes", func() bool { time.Sleep(time.Hour); return true }, true, "Started", 1},
			{"complete it", func() bool { return s.Complete(id) }, true, "", 1},
			{"list a third", func() bool { id = reboot(); return true }, true, "Scheduled", 1},
			{"withdraw", func() bool { return s.Withdraw(id) }, true, "", 1},
			{"withdraw again", func() bool { return s.Withdraw(id) }, false, "", 0},
		}
		before := document(t, vm).DocumentIncarnation
		for _, step := range steps {
			if did := step.do(); did != step.did {
				t.Errorf("%s: reported %t, want %t", step.name, did, step.did)
			}
			doc := document(t, vm)
			if rise := doc.DocumentIncarnation - before; rise != step.rise {
				t.Errorf("%s: incarnation rose by %d, want %d", step.name, rise, step.rise)
			}
			if status := doc.statuses()[id]; status != step.status {
				t.Errorf("%s: status = %q, want %q", step.name, status, step.status)
			}
			if _, listed := s.Event(id); listed != (step.status != "") {
				t.Errorf("%s: Event found = %t, want %t", step.name, listed, step.status != "")
			}
			before = doc.DocumentIncarnation
		}
	})
}

func TestEventsReachTheWholeScaleSetAndNoOther(t *testing.T) {
	s := unlimited()
	named := s.AddVM(VM{Name: "one_0", ScaleSet: "one"})
	neighbour := s.AddVM(VM{Name: "one_1", ScaleSet: "One"})
	other := s.AddVM(VM{Name: "two_0", ScaleSet: "two"})
	single := s.AddVM(VM{Name: "one"}) // has the scale set's name, but is not in it
	id := s.Schedule(Event{Type: "Reboot", Resources: []string{"ONE_0"}})

	for _, tt := range []struct {
		vm   *Guest
		sees bool
	}{{named, true}, {neighbour, true}, {other, false}, {single, false}} {
		doc := document(t, tt.vm)
		if _, sees := doc.statuses()[id]; sees != tt.sees {
			t.Errorf("%s sees the event: %t, want %t", tt.vm.name, sees, tt.sees)
		}
		if want := map[bool]int{true: 2, false: 1}[tt.sees]; doc.DocumentIncarnation != want {
			t.Errorf("incarnation for %s = %d, want %d", tt.vm.name, doc.DocumentIncarnation, want)
		}
	}
}

func TestEventWaitsForAVMThatIsYetToCome(t *testing.T) {
	s := unlimited()
	first := s.Schedule(Event{Type: "Preempt", Resources: []string{"late"}})
	second := s.Schedule(Event{Type: "Reboot", Resources: []string{"late"}})
	vm := s.AddVM(VM{Name: "late"})
	want := map[string]string{first: "Scheduled", second: "Scheduled"}
	if diff := cmp.Diff(want, document(t, vm).statuses()); diff != "" {
		t.Errorf("events of a VM added later (-want +got):\n%s", diff)
	}
	s.AddVM(VM{Name: "late"})
	if n := len(document(t, vm).Events); n != 2 {
		t.Errorf("%d events after the VM was described again, want 2", n)
	}
}

func TestStartRequests(t *testing.T) {
	const (
		mine    = "AAAAAAAA-0000-0000-0000-000000000001"
		second  = "AAAAAAAA-0000-0000-0000-000000000002"
		foreign = "AAAAAAAA-0000-0000-0000-000000000003"
	)
	tests := []struct {
		name   string
		body   string
		status int
		starts []string
	}{
		{"one", `{"StartRequests":[{"EventId":"` + mine + `"}]}`, 200, []string{mine}},
		{"lower case", `{"StartRequests":[{"EventId":"aaaaaaaa-0000-0000-0000-000000000001"}]}`, 200, []string{mine}},
		{"two", `{"StartRequests":[{"EventId":"` + mine + `"},{"EventId":"` + second + `"}]}`, 200, []string{mine, second}},
		{"unknown id", `{"StartRequests":[{"EventId":"BBBBBBBB-0000-0000-0000-000000000001"}]}`, 400, nil},
		{"of another scale set", `{"StartRequests":[{"EventId":"` + foreign + `"}]}`, 400, nil},
		{"one good, one unknown", `{"StartRequests":[{"EventId":"` + mine + `"},{"EventId":"x"}]}`, 400, nil},
		{"no ids", `{"StartRequests":[]}`, 400, nil},
		{"no list", `{"EventId":"` + mine + `"}`, 400, nil},
		{"EventId in another case", `{"StartRequests":[{"EventID":"` + mine + `"}]}`, 400, nil},
		{"StartRequests in another case", `{"startRequests":[{"EventId":"` + mine + `"}]}`, 400, nil},
		{"one request without an id", `{"StartRequests":[{"EventId":"` + mine + `"},{}]}`, 400, nil},
		{"an id that is no text", `{"StartRequests":[{"EventId":7}]}`, 400, nil},
		{"not JSON", `StartRequests`, 400, nil},
		{"empty", ``, 400, nil},
		{"too long", `{"StartRequests":[{"EventId":"` + mine + `"}]}` + string(make([]byte, maxBody)), 400, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := unlimited()
			vm := s.AddVM(VM{Name: "set_0", ScaleSet: "set"})
			neighbour := s.AddVM(VM{Name: "set_1", ScaleSet: "set"})
			s.AddVM(VM{Name: "other"})
			s.Schedule(Event{ID: mine, Type: "Reboot", Resources: []string{"set_0", "set_1"}})
			s.Schedule(Event{ID: second, Type: "Freeze", Resources: []string{"set_1"}})
			s.Schedule(Event{ID: foreign, Type: "Reboot", Resources: []string{"other"}})

			r := mustSend(t, vm, http.MethodPost, eventsPath, tt.body)
			if r.status != tt.status {
				t.Fatalf("status = %d (%s), want %d", r.status, r.body, tt.status)
			}
			if tt.status == 200 && r.body != "" {
				t.Errorf("body = %q, want none", r.body)
			}
			want := map[string]string{mine: "Scheduled", second: "Scheduled"}
			for _, id := range tt.starts {
				want[id] = "Started"
			}
			if diff := cmp.Diff(want, document(t, neighbour).statuses()); diff != "" {
				t.Errorf("statuses for the other VM (-want +got):\n%s", diff)
			}
			if tt.status == 200 {
				if again := mustSend(t, neighbour, http.MethodPost, eventsPath, tt.body); again.status != 200 {
					t.Errorf("status of a second approval = %d, want 200", again.status)
				}
			}
		})
	}
}

// TestMove: an event that has not started gets another NotBefore, and nothing
// else does.
func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := unlimited()
		vm := s.AddVM(VM{Name: "a"})
		reboot := s.Schedule(Event{Type: "Reboot", Resources: []string{"a"}})
		failure := s.Schedule(Event{Type: "Reboot", Status: "Started", Resources: []string{"a"}})
		advice := s.Schedule(Event{Type: "SpotRebalanceRecommendation", Status: "Advisory", Resources: []string{"a"}})
		before := document(t, vm).DocumentIncarnation

		later := time.Now().Add(time.Hour)
		if !s.Move(reboot, later) {
			t.Error("Move of a scheduled event = false, want true")
		}
		for name, id := range map[string]string{"started": failure, "advised": advice, "unknown": "x"} {
			if s.Move(id, later) {
				t.Errorf("Move of an event that is %s = true, want false", name)
			}
		}
		doc := document(t, vm)
		if got, want := doc.Events[0].NotBefore, "Sat, 01 Jan 2000 01:00:00 GMT"; got != want || doc.DocumentIncarnation != before+1 {
			t.Errorf("moved event is not before %q in incarnation %d, want %q in %d", got, doc.DocumentIncarnation, want, before+1)
		}
		time.Sleep(time.Hour - 1)
		if got := document(t, vm).statuses()[reboot]; got != "Scheduled" {
			t.Errorf("status after the old NotBefore = %s, want Scheduled", got)
		}
		time.Sleep(time.Nanosecond)
		if got := document(t, vm).statuses()[reboot]; got != "Started" {
			t.Errorf("status at the new NotBefore = %s, want Started", got)
		}
	})
}
