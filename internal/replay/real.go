package replay

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Plan holds the lives of VMs and the jobs that a scenario draws. All times count from the start.
type Plan struct {
	Scenario Scenario
	Lanes    int // VMs at a time
	VMs      []VM
	Jobs     []time.Duration // when each is put
}

// VM is the life of a VM. It is planned, or as it was with a real process.
type VM struct {
	Lane  int           // the VM replaces the VM before it in its lane
	From  time.Duration // it is paid for from then on
	Ready time.Duration // its worker takes work; after End if it does not live so long
	Told  time.Duration // its end is announced; End without a notice
	Seen  time.Duration // its worker sees the notice; End if it does not
	End   time.Duration
}

// RealRun is one run of a job on a VM with a real worker.
type RealRun struct {
	Job, Lane       int
	From, Works, To time.Duration   // claimed; the handler works; done, released or dead
	End             End             // [Cut] for a run that is not over
	Saves           []time.Duration // when they were complete, without the save of the release
	SavedAtRelease  bool            // the release saved the last state
	Saving          time.Duration   // the job stood still
	Kept, Redone    time.Duration   // work that is recorded, and work that was lost
	Lost            time.Duration   // when the notice was seen, or the VM went
	Visible         time.Duration   // when the message was visible again
}

// Draw returns the plan that [Run] replays.
func Draw(s Scenario) (*Plan, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	lanes, err := s.Fleet.draw(s.For.Duration, rand.New(rand.NewPCG(s.Seed, 1)))
	if err != nil {
		return nil, err
	}
	p := &Plan{Scenario: s, Lanes: len(lanes)}
	for lane, lives := range lanes {
		for _, l := range lives {
			if l.from < s.For.Duration {
				p.VMs = append(p.VMs, VM{Lane: lane, From: l.from, Ready: l.ready, Told: l.told, Seen: l.seen, End: l.end})
			}
		}
	}
	slices.SortStableFunc(p.VMs, func(a, b VM) int { return cmp.Compare(a.From, b.From) })
	for _, t := range s.tasks(lanes[:len(lanes)-s.Fleet.Fixed]) {
		p.Jobs = append(p.Jobs, t.put)
	}
	return p, nil
}

// Report returns the report of a plan with real processes: the VMs as they lived, the runs of jobs,
// and the number of storage calls for jobs.
func (p *Plan) Report(vms []VM, runs []RealRun, calls int) *Report {
	lanes := make([][]life, p.Lanes)
	for _, v := range vms {
		lanes[v.Lane] = append(lanes[v.Lane], life{from: v.From, ready: v.Ready, told: v.Told, seen: v.Seen, end: v.End})
	}
	tasks := make([]task, len(p.Jobs))
	for n, put := range p.Jobs {
		tasks[n].put = put
	}
	c := newTally(p.Scenario, lanes, p.Lanes)
	slices.SortStableFunc(runs, func(a, b RealRun) int { return cmp.Compare(a.From, b.From) })
	for _, r := range runs {
		t := &tasks[r.Job]
		c.claimed(t, r.From)
		c.ran(r.Job, r.Lane, r.attempt())
		t.runs++
		t.recorded += r.Kept
		t.lost, t.lastEnd = r.Lost, r.End
		if r.End == Done {
			t.done = r.To
		}
	}
	c.calls = calls
	return c.report(tasks)
}

func (r RealRun) attempt() attempt {
	saves := len(r.Saves)
	if r.SavedAtRelease {
		saves++
	}
	return attempt{
		from: r.From, works: r.Works, to: r.To, end: r.End, saves: saves, marks: r.Saves[:min(len(r.Saves), mostMarks)],
		saving: r.Saving, kept: r.Kept, redone: r.Redone, lost: r.Lost, visible: r.Visible,
	}
}
