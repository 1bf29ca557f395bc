package worker

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
)

// TestLossesOf: how many workers were lost, with and without a notice, is read from
// their last heartbeats.
func TestLossesOf(t *testing.T) {
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	listed := func(p presence.Presence) presence.Listed { return presence.Listed{Presence: p} }
	ran := func(state string, hours int, ago time.Duration) presence.Listed {
		return listed(presence.Presence{State: state, StartedAt: now.Add(-ago - time.Duration(hours)*time.Hour), At: now.Add(-ago)})
	}
	asked := func(what string, p presence.Listed) presence.Listed { p.Asked = what; return p }
	for _, row := range []struct {
		name string
		all  []presence.Listed
		want checkpoint.Losses
	}{
		{"no workers", nil, checkpoint.Losses{}},
		{"running", []presence.Listed{ran("process", 3, 14*time.Second)}, checkpoint.Losses{Watched: 3 * time.Hour}},
		{"draining", []presence.Listed{ran("shutdown", 3, time.Minute)}, checkpoint.Losses{Watched: 3 * time.Hour}},
		{"heartbeat outdated", []presence.Listed{ran("process", 3, 3*time.Minute)}, checkpoint.Losses{Watched: 3 * time.Hour, Sudden: 1}},
		{"drained, then lost", []presence.Listed{ran("shutdown", 3, time.Hour)}, checkpoint.Losses{Watched: 3 * time.Hour, Warned: 1}},
		{"drained by an operator, who deleted the VM", []presence.Listed{asked("drain", ran("shutdown", 3, time.Hour)),
			asked("quarantine", ran("shutdown", 3, time.Hour))}, checkpoint.Losses{Watched: 6 * time.Hour}},
		{"lost in a pause", []presence.Listed{asked("pause", ran("shutdown", 3, time.Hour)), asked("kinds", ran("process", 3, time.Hour))},
			checkpoint.Losses{Watched: 6 * time.Hour, Warned: 1, Sudden: 1}},
		{"stopped", []presence.Listed{ran("stopped", 3, time.Hour)}, checkpoint.Losses{Watched: 3 * time.Hour}},
		{"too long ago", []presence.Listed{ran("process", 3, 8*24*time.Hour)}, checkpoint.Losses{}},
		{"unreadable times", []presence.Listed{listed(presence.Presence{State: "process"})}, checkpoint.Losses{}},
		{"clock set back", []presence.Listed{listed(presence.Presence{State: "process", StartedAt: now.Add(time.Hour), At: now})},
			checkpoint.Losses{}},
		{"a fleet", []presence.Listed{ran("process", 1, 0), ran("process", 2, time.Hour), ran("shutdown", 4, time.Hour),
			ran("stopped", 8, time.Hour)},
			checkpoint.Losses{Watched: 15 * time.Hour, Warned: 1, Sudden: 1}},
	} {
		if got := lossesOf(row.all, now); got != row.want {
			t.Errorf("%s: lossesOf = %+v, want %+v", row.name, got, row.want)
		}
	}
}
