package events

import (
	"testing"

	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
)

// TestReady: an acknowledgement never comes before its conditions hold, and none comes
// during a drain.
func TestReady(t *testing.T) {
	working := lifecycle.Position{State: lifecycle.Process, Facts: lifecycle.WasWarm}
	draining := lifecycle.Position{State: lifecycle.Shutdown, Facts: lifecycle.WasWarm | lifecycle.EventStands}
	drained := lifecycle.Position{State: lifecycle.Shutdown, Facts: draining.Facts | lifecycle.WorkReleased}
	tests := []struct {
		after                     preempt.Action
		saved                     bool
		working, draining, finish bool
	}{
		{preempt.CarryOn, false, true, false, true},
		{preempt.CheckpointNow, false, false, false, false},
		{preempt.CheckpointNow, true, true, false, true},
		{preempt.DrainBy, true, false, false, true},
		{preempt.Drain, true, false, false, true},
	}
	for _, tt := range tests {
		for position, want := range map[lifecycle.Position]bool{working: tt.working, draining: tt.draining, drained: tt.finish} {
			if got := isReady(tt.after, position, tt.saved); got != want {
				t.Errorf("isReady after %s, saved %t, in %s = %t, want %t", tt.after, tt.saved, position, got, want)
			}
		}
	}
}

func TestAcknowledgeAllows(t *testing.T) {
	self := preempt.Identity{Name: "Set_1"}
	for _, tt := range []struct {
		mode      Acknowledge
		id        string
		resources []string
		want      bool
	}{
		{AcknowledgeSelf, "E", []string{"set_1"}, true},
		{AcknowledgeSelf, "E", []string{"SET_1", "set_1"}, true},
		{AcknowledgeSelf, "E", []string{"set_1", "set_2"}, false},
		{AcknowledgeSelf, "E", []string{"set_2"}, false},
		{AcknowledgeSelf, "E", nil, false},
		{AcknowledgeSelf, "", []string{"set_1"}, false},
		{AcknowledgeNever, "E", []string{"set_1"}, false},
	} {
		if got := tt.mode.allows(preempt.Event{ID: tt.id, Resources: tt.resources}, self); got != tt.want {
			t.Errorf("%s allows event %q of %v = %t, want %t", tt.mode, tt.id, tt.resources, got, tt.want)
		}
	}
}
