// Package scale decides how many VMs the jobs on the queues need, and has the Azure CLI
// change the number: of a scale set, or of the Spot VMs of a compute fleet.
package scale

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spotworker/spotworker/client"
)

// Limits are what an operator wants.
type Limits struct {
	Min, Max  int // VMs
	JobsPerVM int // messages for each VM above which there are more VMs
}

// Facts are what a decision depends on.
type Facts struct {
	Messages int      // about, hidden ones included: also of the jobs that run
	VMs      int      // as Azure has the number
	Idle     []string // VMs with workers that run nothing
}

// Decide returns how many VMs there should be, and why. VMs are added for all messages at
// once. They are removed when half of the limit would do, so that their number does not swing,
// and never more of them than are idle: a VM that runs jobs, or starts, stays.
func (l Limits) Decide(f Facts) (vms int, why string) {
	needed := func(messages int) int { return (messages + l.JobsPerVM - 1) / l.JobsPerVM }
	most, fewest := needed(2*f.Messages), needed(f.Messages)
	busy := max(f.VMs-len(f.Idle), 0)
	want := f.VMs
	switch jobs := fmt.Sprintf("about %d messages at %d for each VM", f.Messages, l.JobsPerVM); {
	case fewest > f.VMs:
		want, why = fewest, fmt.Sprintf("%s need %d VMs", jobs, fewest)
	case most < f.VMs:
		want, why = most, fmt.Sprintf("%s need %d VMs, twice as many messages %d", jobs, fewest, most)
	default:
		why = jobs + " are enough for these VMs, and not twice enough for fewer"
	}
	if want < l.Min {
		want, why = l.Min, fmt.Sprintf("%s; --min is %d", why, l.Min)
	}
	if want > l.Max {
		want, why = l.Max, fmt.Sprintf("%s; --max is %d", why, l.Max)
	}
	if want < busy && want < f.VMs {
		want, why = busy, fmt.Sprintf("%s; %d VMs run jobs, start, or have no worker that is alive", why, busy)
	}
	return want, why
}

// Idle returns the names of the VMs with a prefix on which a worker takes from a queue and none
// has a job, sorted.
func Idle(workers []client.Worker, prefix string, queues []string) []string {
	jobs := map[string]int{}
	takes := map[string]bool{}
	for _, w := range workers {
		if w.Life() != client.Alive || !strings.HasPrefix(w.VM, prefix) || w.VM == "" {
			continue
		}
		jobs[w.VM] += w.Jobs
		if w.State != "process" && w.State != "shutdown" {
			jobs[w.VM]++ // it starts
		}
		takes[w.VM] = takes[w.VM] || slices.ContainsFunc(w.Queues, func(q string) bool { return slices.Contains(queues, q) })
	}
	var idle []string
	for vm := range takes {
		if takes[vm] && jobs[vm] == 0 {
			idle = append(idle, vm)
		}
	}
	slices.Sort(idle)
	return idle
}
