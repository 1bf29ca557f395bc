package realtime

import (
	"cmp"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/replay"
)

// measured turns what was recorded into the runs of a report. Times count from the start.
type measured struct {
	plan  *replay.Plan
	began time.Time
	until time.Time
	lanes map[string]int // of VMs, by name
	jobs  map[string]int // numbers, by id
	hold  time.Duration  // in which a job stands still for a save
}

func (m measured) since(at time.Time) time.Duration { return max(0, at.Sub(m.began)) }

// runs returns all runs. The ledgers in the records say how much work of a run is recorded; a run
// lost the rest of its time. The caller has closed the recorder.
func (m measured) runs(r *recorder) (all []replay.RealRun) {
	byJob := map[string][]*run{}
	for _, one := range r.runs {
		if one.to.After(m.began) {
			byJob[one.job] = append(byJob[one.job], one)
		}
	}
	for job, runs := range byJob {
		if _, put := m.jobs[job]; !put {
			continue // at the very end
		}
		slices.SortStableFunc(runs, func(a, b *run) int { return a.works.Compare(b.works) })
		before := time.Duration(0)
		for _, one := range runs {
			useful := before
			if now, written := r.useful[job][claim{one.vm, one.generation}]; written {
				useful = now
			}
			all = append(all, m.run(one, r.vms[one.vm], before, useful))
			before = useful
		}
	}
	m.waitForSlots(all)
	return all
}

// run measures one run. before and useful are the job's useful time in its ledger before the run and
// after it.
func (m measured) run(one *run, vm vmTimes, before, useful time.Duration) replay.RealRun {
	r := replay.RealRun{
		Job: m.jobs[one.job], Lane: m.lanes[one.vm], From: m.since(one.claimed), Works: m.since(one.works), To: m.since(one.to), End: one.end,
		Lost: m.since(one.to), Visible: m.since(one.visible),
	}
	for _, at := range one.saves {
		r.Saves = append(r.Saves, m.since(at))
	}
	if r.End == replay.Released && !vm.seen.IsZero() {
		r.Lost = min(r.To, m.since(vm.seen))
	}
	if before > 0 { // the job's start with a state is no work
		restore := m.plan.Scenario.Work.Restore.Duration
		r.Works = min(r.Works+restore, r.Lost)
		useful = max(before, useful-restore)
	}
	r.Works = min(r.Works, r.Lost)
	if r.From = min(r.From, r.Works); one.claimed.IsZero() {
		r.From = r.Works
	}
	r.SavedAtRelease = r.End == replay.Released && one.savedLast
	worked := r.Lost - r.Works
	r.Saving = min(worked, time.Duration(len(r.Saves))*m.hold)
	switch r.End {
	case replay.Cut, replay.Done:
		r.Kept = worked - r.Saving
	case replay.Released, replay.Died:
		r.Kept = min(worked-r.Saving, max(0, useful-before-r.Saving))
		r.Redone = worked - r.Saving - r.Kept
	}
	r.Saving += r.To - r.Lost // from the notice to the release
	return r
}

// waitForSlots lets runs begin when they have a slot: a worker may claim a message shortly before.
func (m measured) waitForSlots(all []replay.RealRun) {
	slots := m.plan.Scenario.Fleet.Slots
	slices.SortFunc(all, func(a, b replay.RealRun) int { return cmp.Compare(a.Works, b.Works) })
	for i := range all {
		var ends []time.Duration // of runs that held a slot of the lane at the claim
		for _, other := range all[:i] {
			if other.Lane == all[i].Lane && other.From <= all[i].From && other.To > all[i].From {
				ends = append(ends, other.To)
			}
		}
		if free := len(ends) - slots; free >= 0 {
			slices.Sort(ends)
			all[i].From = min(all[i].Works, ends[free])
		}
	}
}
