package intake

import (
	"testing"
	"time"
)

// TestDemand: a worker claims as many messages as it can start soon, at most 32, and
// claims ahead in full batches only.
func TestDemand(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name   string
		demand Demand
		wanted int
		claims int
	}{
		{"nothing known: only what can be started", Demand{Slots: 4, Free: 4}, 4, 1},
		{"no backlog: only what can be started", Demand{Slots: 4, Free: 3, Mean: ms}, 3, 1},
		{"no backlog, and enough was asked for", Demand{Slots: 4, Free: 3, Asked: 3, Mean: ms}, 0, 1},
		{"long jobs: no buffer", Demand{Slots: 4, Free: 1, Mean: time.Hour, Backlog: true}, 1, 1},
		{"4 slots finish one in 2 s", Demand{Slots: 4, Free: 1, Mean: 8 * time.Second, Backlog: true}, 2, 1},
		{"jobs of a second are not claimed ahead", Demand{Slots: 4, Mean: time.Second, Backlog: true}, 0, 1},
		{"short jobs: a full batch", Demand{Slots: 2, Free: 1, Mean: 10 * ms, Backlog: true}, 32, 1},
		{"short jobs, all slots busy: a batch ahead", Demand{Slots: 2, Mean: 10 * ms, Backlog: true}, 32, 1},
		{"short jobs, and long ones that run now", Demand{Slots: 2, Mean: 10 * ms, Quiet: 2 * time.Second, Backlog: true}, 0, 1},
		{"short jobs, and a slot that is free after long ones", Demand{Slots: 2, Free: 1, Mean: 10 * ms, Quiet: 2 * time.Second, Backlog: true},
			1, 1},
		{"short jobs, a batch in the buffer", Demand{Slots: 2, Buffered: 32, Mean: 10 * ms, Backlog: true}, 0, 1},
		{"short jobs, a batch on its way", Demand{Slots: 2, Asked: 32, Mean: 10 * ms, Backlog: true}, 0, 1},
		{"the service's limit", Demand{Slots: 1024, Free: 1024}, 32, 1},
		{"64 slots, 10 ms a call", Demand{Slots: 64, Buffered: 64, Mean: 20 * ms, Claim: 10 * ms, Backlog: true}, 32, 2},
		{"64 slots, 10 ms a call: no more than that", Demand{Slots: 64, Buffered: 65, Mean: 20 * ms, Claim: 10 * ms, Backlog: true}, 0, 2},
		{"256 slots, 10 ms a call", Demand{Slots: 256, Buffered: 100, Asked: 96, Mean: 20 * ms, Claim: 10 * ms, Backlog: true}, 32, 5},
		{"a slow claim buffers no more than two rounds of the slots", Demand{Slots: 64, Buffered: 129, Mean: 20 * ms, Claim: 10 * time.Second,
			Backlog: true}, 0, MaxClaims},
	} {
		if got := tt.demand.Wanted(); got != tt.wanted {
			t.Errorf("%s: Wanted = %d, want %d", tt.name, got, tt.wanted)
		}
		if got := tt.demand.Claims(); got != tt.claims {
			t.Errorf("%s: Claims = %d, want %d", tt.name, got, tt.claims)
		}
	}
}
