package delivery

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
)

// TestWorkersOfASample: only workers in operation with a new heartbeat count. Workers without a job are idle, and
// workers of the same queue are peers.
func TestWorkersOfASample(t *testing.T) {
	for name, row := range map[string]struct {
		age           time.Duration
		state         string
		jobs          int
		takes         string
		working, idle int
		peers, others int // that take from the queue, and that do not
	}{
		"idle":                    {0, "process", 0, "jobs", 1, 1, 1, 0},
		"just in time":            {lacksKindFor, "process", 0, "jobs", 1, 1, 1, 0},
		"silent":                  {lacksKindFor + 1, "process", 0, "jobs", 0, 0, 0, 0},
		"starting":                {0, "start", 0, "jobs", 0, 0, 0, 0},
		"stopped":                 {0, "stopped", 0, "jobs", 0, 0, 0, 0},
		"with a job":              {0, "process", 1, "jobs", 1, 0, 1, 0},
		"with many":               {0, "process", 8, "jobs", 1, 0, 1, 0},
		"on another queue":        {0, "process", 0, "jobs-ondemand", 1, 0, 0, 1},
		"silent on another queue": {lacksKindFor + 1, "process", 0, "jobs-ondemand", 0, 0, 0, 0},
		"stopped on another":      {0, "stopped", 0, "jobs-ondemand", 0, 0, 0, 0},
	} {
		p := presence.Presence{State: row.state, Count: row.jobs, TakesFrom: []string{row.takes}}
		at := time.Now()
		f := NewFleet(nil)
		f.sampled = Sample{at: at, Workers: []presence.Listed{{Presence: p, Age: row.age}}}
		taking, idle, since := f.Taking("jobs")
		if taking != row.peers || idle != row.idle || !since.Equal(at) || f.Working() != row.working {
			t.Errorf("%s: %d take, %d idle at %s, %d working; want %d, %d at %s, %d", name, taking, idle, since, f.Working(), row.peers,
				row.idle, at,
				row.working)
		}
		if peers, others := f.sampled.Peers("jobs", true), f.sampled.Peers("jobs", false); peers != row.peers || others != row.others {
			t.Errorf("%s: %d peers, %d others; want %d, %d", name, peers, others, row.peers, row.others)
		}
	}
}
