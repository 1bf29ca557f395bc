// Package spent adds up what jobs have cost, from the ledgers in their records.
package spent

import (
	"cmp"
	"slices"
	"time"

	"github.com/spotworker/spotworker/client"
)

// Sum is the total cost of a group of jobs.
type Sum struct {
	Jobs                     int
	Useful, Redone, Overhead float64
	Once                     float64 // overhead of one delivery of each job
	Evictions, UncleanExits  int
}

// add adds a job.
func (r *Sum) add(j client.Job) {
	k := j.Cost
	r.Jobs++
	r.Useful += k.Useful.Seconds()
	r.Redone += k.Redone.Seconds()
	r.Overhead += k.Overhead.Seconds()
	r.Once += k.Overhead.Seconds() / float64(j.Deliveries)
	r.Evictions += k.Evictions
	r.UncleanExits += k.UncleanExits
}

// Total is the time in slots, in seconds.
func (r Sum) Total() float64 { return r.Useful + r.Redone + r.Overhead }

func (r *Sum) merge(o Sum) {
	r.Jobs += o.Jobs
	r.Useful, r.Redone, r.Overhead, r.Once = r.Useful+o.Useful, r.Redone+o.Redone, r.Overhead+o.Overhead, r.Once+o.Once
	r.Evictions, r.UncleanExits = r.Evictions+o.Evictions, r.UncleanExits+o.UncleanExits
}

// Money is the price of jobs, for people. A text is empty if it is not known.
type Money struct{ Cost, Regular, Saved string }

// Slots are how many jobs VMs do at a time, by the heartbeats of live workers.
type Slots struct {
	Least, Most, VMs int
	Mean             float64 // 0 if no heartbeat says it
}

// SlotsOf returns the slots of the VMs of workers.
func SlotsOf(workers []client.Worker) (s Slots) {
	perVM, all := map[string]int{}, 0
	for _, w := range workers {
		if w.Activity != nil && w.State == "process" && w.Life() == client.Alive {
			perVM[cmp.Or(w.VM, w.Name)] += w.Activity.Slots
		}
	}
	for _, n := range perVM {
		if s.Least == 0 || n < s.Least {
			s.Least = n
		}
		s.Most, all = max(s.Most, n), all+n
	}
	if s.VMs = len(perVM); s.VMs > 0 {
		s.Mean = float64(all) / float64(s.VMs)
	}
	return s
}

// Group is the day and kind of a sum; a part that sums are not split by is empty.
type Group struct{ Day, Kind string }

// MostKinds bounds the kinds that have rows of their own, so that the memory stays flat
// for any number of kinds in messages. Further kinds share [OtherKinds].
const (
	MostKinds  = 1000
	OtherKinds = "(other kinds)"
)

// Sums are the sums of jobs, by day and kind. [New] makes them.
type Sums struct {
	Rows       map[Group]*Sum
	Unreadable int // records of newer versions

	byDay, byKind bool
	kinds         map[string]bool
}

// New returns sums without any job, split by day, by kind, by both or not at all.
func New(byDay, byKind bool) *Sums {
	return &Sums{Rows: map[Group]*Sum{}, byDay: byDay, byKind: byKind, kinds: map[string]bool{}}
}

// Add adds a job to the sum of the day of its record's last write.
func (s *Sums) Add(j client.Job) {
	switch {
	case j.Status == client.StatusUnknown:
		s.Unreadable++
		return
	case j.Deliveries == 0:
		return // cancelled before any worker had it
	}
	var g Group
	if s.byDay {
		g.Day = j.UpdatedAt.UTC().Format(time.DateOnly)
	}
	if s.byKind {
		if g.Kind = j.Kind; !s.kinds[j.Kind] && len(s.kinds) >= MostKinds {
			g.Kind = OtherKinds
		} else {
			s.kinds[j.Kind] = true
		}
	}
	if s.Rows[g] == nil {
		s.Rows[g] = &Sum{}
	}
	s.Rows[g].add(j)
}

// Sorted returns the groups by day and kind, and the sum of all.
func (s *Sums) Sorted() (groups []Group, all Sum) {
	for g, r := range s.Rows {
		groups = append(groups, g)
		all.merge(*r)
	}
	slices.SortFunc(groups, func(a, b Group) int { return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Kind, b.Kind)) })
	return groups, all
}
