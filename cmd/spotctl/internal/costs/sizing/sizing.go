// Package sizing calculates how many VMs, queues and deployments a stream of jobs needs, from the limits that Microsoft documents and the calls that a worker makes.
package sizing

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs/plan"
)

// Limits of storage, from "Scalability and performance targets for Queue Storage" and
// "Scalability and performance targets for standard storage accounts": the lowest of all
// regions.
const (
	QueueMessages = 2000.0  // a second, of one queue, with messages of 1 KiB
	AccountCalls  = 20000.0 // a second
	AccountBytes  = 25e9 / 8
)

// The behaviour of a worker, for the estimate.
const (
	renewEvery = 10 * time.Second
	recordFrom = 10 * time.Second // a longer job has a record while it runs
	claimed    = 32.0             // messages in one call
	callTime   = 25 * time.Millisecond
	linkBytes  = 100e6   // a second, between a VM and storage
	blockBytes = 4 << 20 // of a state, in one call
	month      = 730 * time.Hour
)

// Load is the work to be done.
type Load struct {
	JobsPerSecond float64
	Seconds       float64 // of work in one job
	StateBytes    float64 // of a job's checkpoint, all of it new at each save
	Slots         int     // jobs at once on a VM
	Rate          float64 // evictions per hour of a VM
	Boot          time.Duration
}

// Size is the resources that a load needs.
type Size struct {
	VMs         int
	Useful      float64 // share of the VMs' time
	Queues      int
	Deployments int // each has one storage account

	Interval time.Duration // between saves; 0 without any
	Calls    float64       // for one job, its put included
	PerMonth struct{ Jobs, Calls, Bytes float64 }

	Uses []Use // the fullest first: the bottleneck
}

// Use is how full one resource of a kind would be.
type Use struct {
	Name  string
	Share float64 // of one queue or account; above 1 there must be more
}

// For returns the size for a load.
func For(l Load) Size {
	var s Size
	length := time.Duration(l.Seconds * float64(time.Second))
	save := callTime + time.Duration(l.StateBytes/linkBytes*float64(time.Second))
	model := plan.ModelFor(plan.Work{Boot: l.Boot, Save: save}, l.Rate)
	saves := 0.0
	if l.StateBytes > 0 && length > model.Interval {
		s.Interval = model.Interval
		saves = math.Floor(float64(length) / float64(model.Interval+save))
	}
	if saves == 0 {
		model.Saving = 0 // the work that is lost and done again is bounded by the job's own length
		model.Redone = l.Rate * min(l.Seconds/2/3600, model.Interval.Hours()/2)
	}
	s.Useful = model.Useful()
	if s.Useful > 0 {
		s.VMs = int(math.Ceil(l.JobsPerSecond * l.Seconds / float64(l.Slots) / s.Useful))
		s.VMs = max(s.VMs, 1)
	}
	renewals := math.Floor(float64(length) / float64(renewEvery))
	records := 1.0 // the outcome
	if length > recordFrom && saves == 0 {
		records++
	}
	s.Calls = 2 + 1/claimed + records + renewals + saves*math.Ceil(max(l.StateBytes/blockBytes, 1))
	messages := l.JobsPerSecond * (1 + renewals)
	bytes := l.JobsPerSecond * saves * l.StateBytes
	s.Uses = []Use{
		{"messages of a queue", messages / QueueMessages},
		{"calls to an account", l.JobsPerSecond * s.Calls / AccountCalls},
		{"bytes written to an account", bytes / AccountBytes},
	}
	s.Queues = needed(s.Uses[0].Share)
	s.Deployments = needed(max(s.Uses[1].Share, s.Uses[2].Share))
	s.PerMonth.Jobs = l.JobsPerSecond * month.Seconds()
	s.PerMonth.Calls, s.PerMonth.Bytes = s.PerMonth.Jobs*s.Calls, bytes*month.Seconds()
	slices.SortStableFunc(s.Uses, func(a, b Use) int { return cmp.Compare(b.Share, a.Share) })
	return s
}

func needed(share float64) int { return max(int(math.Ceil(share)), 1) }

// Cost returns the cost of a month: VMs at a price for an hour, and storage calls at a
// price for 10,000.
func (s Size) Cost(vmHour, calls float64) (vms, storage float64) {
	return float64(s.VMs) * month.Hours() * vmHour, s.PerMonth.Calls / 10000 * calls
}
