package plan

import (
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// notice is how long an evicted VM is still paid for while its worker takes no work:
// the 30 s that Azure announces a Preempt before.
const notice = 30 * time.Second

// Work says what evictions cost a job.
type Work struct {
	Boot time.Duration // from when a VM is paid for until its worker takes work
	Save time.Duration // the time of a save
}

// Model is how an hour that is paid for is spent, as shares of it.
type Model struct {
	Interval time.Duration // between two saves
	Saving   float64       // spent on saves
	Redone   float64       // work that evictions lose
	Idle     float64       // booting, and waiting for the end after a notice
}

// Useful returns the share of the time that is useful. It may be negative: then VMs are
// evicted faster than they do anything.
func (m Model) Useful() float64 { return 1 - m.Saving - m.Redone - m.Idle }

// ModelFor returns the model at a number of evictions per hour of a VM. Each eviction
// is assumed to lose work: how many come without a usable notice is not
// published, and the workers' policy starts in the same way.
func ModelFor(w Work, rate float64) Model {
	policy := checkpoint.DefaultPolicy()
	policy.EvictionRate = rate
	job := checkpoint.Situation{Cost: w.Save}
	interval := policy.IntervalFor(job)
	return Model{
		Interval: interval,
		Saving:   float64(w.Save) / float64(interval+w.Save),
		Redone:   policy.ShareLost(job),
		Idle:     rate * (w.Boot + notice).Hours(),
	}
}

// DefaultRate is the number of evictions per hour where Azure publishes none: what
// workers start from.
func DefaultRate() float64 { return checkpoint.DefaultPolicy().EvictionRate }
