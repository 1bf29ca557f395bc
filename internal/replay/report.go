package replay

import (
	"cmp"
	"slices"
	"time"
)

// Report is the result of a replay. Durations are seconds, in JSON too.
type Report struct {
	Version  int      `json:"version"` // of this form: 1
	Scenario Scenario `json:"scenario"`

	Took   float64 `json:"took_s"`  // until the last job was done, or the whole time
	Ideal  float64 `json:"ideal_s"` // the same if no VM had been evicted and all had been there from the start
	Jobs   int     `json:"jobs"`
	Done   int     `json:"done"`
	VMs    int     `json:"vms"` // that lived, regular ones included
	Warned Losses  `json:"after_a_notice"`
	Sudden Losses  `json:"without_a_notice"`
	Hours  Hours   `json:"slot_hours"`
	Saves  int     `json:"saves"`
	Calls  int     `json:"storage_calls"` // of jobs; idle polls and heartbeats are left out
	Cost   float64 `json:"cost"`

	Picture picture `json:"-"`
}

// Losses are the runs that evictions ended.
type Losses struct {
	Runs    int     `json:"runs"`
	Redone  float64 `json:"redone_s"` // mean of the redone work of a run
	Hidden  float64 `json:"hidden_s"` // mean time until a message was visible again
	Resumed int     `json:"resumed"`  // runs of jobs that ran again before the end of the replay
	Mean    float64 `json:"resumed_mean_s"`
	Median  float64 `json:"resumed_p50_s"` // until it ran on another VM, where it does
	P99     float64 `json:"resumed_p99_s"`

	delays []time.Duration
	redone time.Duration
	hidden time.Duration
}

// Hours is the use of the paid time of the slots.
type Hours struct {
	Useful   float64 `json:"useful"`   // work that counts
	Saving   float64 `json:"saving"`   // the job stood still
	Redone   float64 `json:"redone"`   // work that was lost
	Starting float64 `json:"starting"` // between claim and work
	Booting  float64 `json:"booting"`
	Leaving  float64 `json:"leaving"` // between release and the end of the VM
	Idle     float64 `json:"idle"`
}

// Part is one use of the paid time.
type Part struct {
	Name  string
	Class string // of its colour on the page
	Hours float64
	Share float64 // of the paid time, in percent
}

// Parts returns all uses of the paid time.
func (h Hours) Parts() []Part {
	parts := []Part{
		{Name: "useful", Class: "useful", Hours: h.Useful}, {Name: "saving", Class: "saving", Hours: h.Saving},
		{Name: "redone", Class: "redone", Hours: h.Redone}, {Name: "starting", Class: "starting", Hours: h.Starting},
		{Name: "booting", Class: "boot", Hours: h.Booting}, {Name: "leaving", Class: "leaving", Hours: h.Leaving},
		{Name: "idle", Class: "idle", Hours: h.Idle},
	}
	for i := range parts {
		parts[i].Share = percent(parts[i].Hours, h.Paid())
	}
	return parts
}

// Running is the time in which slots had a job.
func (h Hours) Running() float64 { return h.Useful + h.Saving + h.Redone + h.Starting }

// Paid is all of the time.
func (h Hours) Paid() float64 { return h.Running() + h.Booting + h.Leaving + h.Idle }

// Goodput is the useful share of the time in which jobs ran, in percent.
func (h Hours) Goodput() float64 { return percent(h.Useful, h.Running()) }

// GoodputPaid is the useful share of the time paid for, in percent. Idle slots count.
func (h Hours) GoodputPaid() float64 { return percent(h.Useful, h.Paid()) }

// GoodputBusy is the useful share of the time paid for without idle slots, in percent, as in
// a fleet with enough work.
func (h Hours) GoodputBusy() float64 { return percent(h.Useful, h.Paid()-h.Idle) }

func percent(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return 100 * part / whole
}

// tally sums up attempts while they are replayed.
type tally struct {
	scenario Scenario
	lanes    [][]life
	spot     int
	sum      struct{ useful, saving, redone, starting, left time.Duration }
	warned   Losses
	sudden   Losses
	saves    int
	calls    int
	last     time.Duration // when the last job was done
	batch    int           // claims that are not counted as a call yet
	picture  picture
}

func newTally(s Scenario, lanes [][]life, spot int) *tally {
	return &tally{scenario: s, lanes: lanes, spot: spot}
}

// claimed counts a claim at a moment: 32 claims of new jobs are a call, and each of others.
func (c *tally) claimed(t *task, at time.Duration) {
	if t.runs == 0 {
		if c.batch--; c.batch < 0 {
			c.batch, c.calls = 31, c.calls+1
		}
		return
	}
	c.calls++
	of := &c.warned
	if t.lastEnd == Died {
		of = &c.sudden
	}
	of.delays = append(of.delays, at-t.lost)
}

// ran adds an attempt.
func (c *tally) ran(n, lane int, a attempt) {
	c.sum.useful += a.kept
	c.sum.redone += a.redone
	c.sum.saving += a.saving
	c.sum.starting += a.works - a.from
	c.sum.left += a.to - a.lost
	c.saves += a.saves
	c.calls += a.calls
	switch a.end {
	case Cut:
	case Done:
		c.last = max(c.last, a.to)
	case Released, Died:
		of := &c.warned
		if a.end == Died {
			of = &c.sudden
		}
		of.Runs++
		of.redone += a.redone
		of.hidden += max(0, a.visible-a.lost)
	}
	c.picture.add(n, lane, a)
}

// report completes the sums.
func (c *tally) report(tasks []task) *Report {
	r := &Report{
		Version: 1, Scenario: c.scenario, Jobs: len(tasks), Saves: c.saves, Calls: c.calls,
		Warned: c.warned.summary(), Sudden: c.sudden.summary(),
	}
	for _, t := range tasks {
		if t.done > 0 {
			r.Done++
		}
	}
	end := c.scenario.For.Duration
	if r.Done == r.Jobs {
		end = c.last
	}
	slots := float64(c.scenario.Fleet.Slots)
	var paid, booting, leaving time.Duration
	for lane, lives := range c.lanes {
		price := c.scenario.Fleet.Price
		if lane >= c.spot {
			price = c.scenario.Fleet.Dear
		}
		for _, l := range lives {
			if l.from >= end {
				break
			}
			r.VMs++
			gone := min(l.end, end)
			paid += gone - l.from
			booting += min(l.ready, gone) - l.from
			leaving += gone - min(max(l.ready, c.scenario.Policy.leaves(l)), gone)
			r.Cost += price * (gone - l.from).Hours()
		}
	}
	r.Hours = Hours{
		Useful: c.sum.useful.Hours(), Saving: c.sum.saving.Hours(), Redone: c.sum.redone.Hours(), Starting: c.sum.starting.Hours(),
		Booting: slots * booting.Hours(), Leaving: slots*leaving.Hours() - c.sum.left.Hours(),
	}
	r.Hours.Idle = slots*paid.Hours() - r.Hours.Running() - r.Hours.Booting - r.Hours.Leaving
	r.Took = end.Seconds()
	r.Ideal = c.ideal(tasks).Seconds()
	r.Picture = c.picture
	r.Picture.until, r.Picture.lanes, r.Picture.spot, r.Picture.tasks = end, c.lanes, c.spot, tasks
	return r
}

// ideal is when the last job would be done if all lanes had one VM for ever.
func (c *tally) ideal(tasks []task) time.Duration {
	length, slots := c.scenario.Work.Length.Duration, c.spot*c.scenario.Fleet.Slots
	rounds := (len(tasks) + slots - 1) / slots
	return max(time.Duration(rounds)*length, tasks[len(tasks)-1].put+length)
}

// summary completes the means.
func (l Losses) summary() Losses {
	if l.Runs > 0 {
		l.Redone = l.redone.Seconds() / float64(l.Runs)
		l.Hidden = l.hidden.Seconds() / float64(l.Runs)
	}
	if n := len(l.delays); n > 0 {
		l.Resumed = n
		slices.SortFunc(l.delays, cmp.Compare[time.Duration])
		sum := time.Duration(0)
		for _, d := range l.delays {
			sum += d
		}
		l.Mean = sum.Seconds() / float64(n)
		l.Median = l.delays[n/2].Seconds()
		l.P99 = l.delays[min(n-1, n*99/100)].Seconds()
	}
	return l
}
