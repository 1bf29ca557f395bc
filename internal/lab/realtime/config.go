package realtime

import (
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/delivery/renewal"
	"github.com/spotworker/spotworker/internal/replay"
)

// Config describes a replay.
type Config struct {
	Scenario replay.Scenario

	// Worker is the program that is run with [WorkerCommand]. Default: this one.
	Worker string
}

// Bounds of a replay, for a machine with few processors.
const (
	MostVMs  = 32 // at a time: each is a process
	mostJobs = 64 // at a time
	mostPut  = 20_000
	longest  = 2 * time.Hour

	// leastLife is the least mean time between two starts of VMs: a start takes a processor 0.1 s.
	leastLife = 500 * time.Millisecond
)

// plan draws the scenario. The error says what to change if it does not fit a machine.
func (c Config) plan() (*replay.Plan, error) {
	s := c.Scenario
	switch {
	case s.Policy.Hold:
		return nil, errors.New("no_release: workers always release; replay that in virtual time")
	case s.Policy.MoveAfter > 0 || s.Fleet.Fixed > 0:
		return nil, errors.New("regular VMs, and jobs that move to them: replay those in virtual time")
	case s.Policy.Visibility.Duration > renewal.MaxVisibility:
		return nil, fmt.Errorf("visibility %s: workers take up to %s; replay that in virtual time", s.Policy.Visibility, renewal.MaxVisibility)
	case s.For.Duration > longest:
		return nil, fmt.Errorf("real processes for %s: give --for up to %s, and so that VMs end in that time, --evictions or --shorten-lives",
			replay.Brief(s.For.Duration), replay.Brief(longest))
	}
	p, err := replay.Draw(s)
	if err != nil {
		return nil, err
	}
	switch started := float64(s.For.Duration) / float64(leastLife); {
	case p.Lanes > MostVMs:
		return nil, fmt.Errorf("%d VMs at a time, each a process of this machine: give --vms up to %d", p.Lanes, MostVMs)
	case p.Lanes*s.Fleet.Slots > mostJobs:
		return nil, fmt.Errorf("%d VMs with %d slots: give --vms and --slots for up to %d jobs at a time", p.Lanes, s.Fleet.Slots, mostJobs)
	case float64(len(p.VMs)-p.Lanes) > started:
		return nil, fmt.Errorf("%d VMs in %s: give fewer --evictions, or a smaller --shorten-lives, for up to two starts a second", len(p.VMs),
			replay.Brief(s.For.Duration))
	case len(p.Jobs) > mostPut:
		return nil, fmt.Errorf("%d jobs: give fewer --jobs, or a longer --job-time, for up to %d", len(p.Jobs), mostPut)
	}
	return p, nil
}
