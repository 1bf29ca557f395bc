package jobtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// place is the kind of point at which a run is interrupted.
type place int

const (
	atStart  place = iota + 1 // before the handler is called
	atReport                  // within a report
	atCheck                   // when the handler checks its context
	atEnd                     // between the handler's return and the commit
)

// moment is the point of an interruption and its kind.
type moment struct {
	place place
	n     int // number of the report or check in the run, from 1

	// kill ends the run without notice. The saved state is then the state of the run's
	// report number recorded; 0 is the state that the run began with.
	kill     bool
	recorded int
}

// String completes "was ...".
func (m moment) String() string {
	how := "stopped with notice"
	if m.kill {
		how = "killed without notice"
	}
	switch m.place {
	case atStart:
		return how + " before it began"
	case atReport:
		return fmt.Sprintf("%s in its report %d", how, m.n)
	case atCheck:
		return fmt.Sprintf("%s at its check %d of the context", how, m.n)
	default:
		return how + " after its end, before the commit"
	}
}

// interruptions are the moments at which the runs of one job are interrupted, the first
// run's first. The run after the last of them is not interrupted.
type interruptions []moment

// plan chooses the interruptions, in at most budget runs, for a job whose uninterrupted
// run has that many reports and checks of its context. sampled reports that it omits some
// of them. The same seed gives the same plan.
func plan(reports, checks, budget int, seed uint64) (jobs []interruptions, sampled bool) {
	p := &planner{reports: reports, checks: checks, left: budget, random: rand.New(rand.NewPCG(seed, 0))}
	p.once(moment{place: atStart})
	p.once(moment{place: atEnd, kill: true})
	if reports > 0 {
		p.once(moment{place: atEnd, kill: true, recorded: reports})
		p.once(moment{place: atEnd, kill: true, recorded: 1 + p.random.IntN(reports)})
		p.add(interruptions{{place: atReport, n: (reports + 1) / 2}, {place: atStart}, {place: atStart}})
		p.everyReport()
		p.atRandom()
	}
	p.eachReport()
	p.eachCheck()
	return p.all, p.sampled
}

type planner struct {
	reports, checks int
	left            int // runs that may still be planned
	random          *rand.Rand
	all             []interruptions
	sampled         bool
}

func (p *planner) add(job interruptions) {
	p.all = append(p.all, job)
	p.left -= len(job) + 1
}

// once interrupts a job at one moment.
func (p *planner) once(m moment) { p.add(interruptions{m}) }

// everyReport interrupts one job at each of its reports, or at every n-th, so that it
// takes at most a quarter of the budget.
func (p *planner) everyReport() {
	most := max(p.left/4-1, 1)
	step := (p.reports + most - 1) / most
	p.add(slices.Repeat(interruptions{{place: atReport, n: step}}, p.reports/step))
}

// atRandom interrupts jobs several times each, in all ways.
func (p *planner) atRandom() {
	for end := p.left - min(p.left/6, 2*(p.reports+p.checks)); p.left > end; {
		job := make(interruptions, min(1+p.random.IntN(4), max(p.left-1, 1)))
		for i := range job {
			m := moment{place: atReport, n: 1 + p.random.IntN(p.reports), kill: p.random.IntN(2) == 0}
			if m.kill {
				m.recorded = p.random.IntN(m.n + 1)
			} else if p.checks > 0 && p.random.IntN(2) == 0 {
				m.place, m.n = atCheck, 1+p.random.IntN(p.checks)
			}
			job[i] = m
		}
		p.add(job)
	}
}

// eachReport interrupts one job at each report, or at each of a sample: with notice,
// without notice when that report was saved, and when an earlier one was.
func (p *planner) eachReport() {
	parts := 8 // two runs for each of the three, and the rest for the checks
	if p.checks == 0 {
		parts = 6
	}
	for _, n := range p.sample(p.reports, p.left/parts) {
		p.once(moment{place: atReport, n: n})
		p.once(moment{place: atReport, n: n, kill: true, recorded: n})
		p.once(moment{place: atReport, n: n, kill: true, recorded: p.random.IntN(n)})
	}
}

// eachCheck interrupts one job at each check of its context, or at each of a sample.
func (p *planner) eachCheck() {
	for _, n := range p.sample(p.checks, p.left/2) {
		p.once(moment{place: atCheck, n: n})
	}
}

// sample returns at most most of the numbers 1 … n, in order: all if possible, otherwise
// the first, the last, and one from each of equal parts between.
func (p *planner) sample(n, most int) []int {
	p.sampled = p.sampled || most < n
	if most <= 0 {
		return nil
	}
	chosen := make([]int, 0, min(n, most))
	for i := range min(n, most) {
		from, to := i*n/most, (i+1)*n/most // one of from+1 … to
		switch {
		case n <= most:
			chosen = append(chosen, i+1)
		case i == 0:
			chosen = append(chosen, 1)
		case i == most-1:
			chosen = append(chosen, n)
		default:
			chosen = append(chosen, from+1+p.random.IntN(to-from))
		}
	}
	return chosen
}
