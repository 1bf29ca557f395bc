package histories

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spotworker/spotworker/job"
)

// spoiltFor is for how long the states of a job are spoilt: mostly for one save.
const spoiltFor = 15 * time.Second

// mixPrevious gives some jobs a kind that keeps the state before the last one, and makes
// most of them report states for a while that cannot be used. It has a random source of
// its own.
func (p *plan) mixPrevious() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0xbac2))}
	p.spoils = map[string]int{}
	for _, j := range p.jobs {
		if (j.kind != "chain" && j.kind != "large" && j.kind != "again") || j.noReports || !r.oneIn(2) {
			continue
		}
		if j.kind == "again" {
			j.kind = "again-keeps"
		} else {
			j.kind = "keeps"
		}
		if !r.oneIn(4) {
			p.spoils[j.id] = r.IntN(j.steps)
		}
	}
}

// spoil returns the number for the state after a step: the right one, except for a while from
// the step on that the plan says.
func (c *chain) spoil(p *plannedJob, step int, number uint64) uint64 {
	at, ok := c.plan.spoils[p.id]
	if !ok || step < at {
		return number
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spoilt[p.id].IsZero() {
		c.spoilt[p.id] = time.Now()
	}
	if time.Since(c.spoilt[p.id]) < spoiltFor {
		return ^number
	}
	return number
}

// resumeGood is resume from the last state, or if that is spoilt from the state before
// it. If there is none, as after the first save, or it is spoilt too, the handler repairs
// its state.
func (c *chain) resumeGood(j *job.Job, p *plannedJob, version int) (next int, number uint64, err error) {
	next, number, err = c.resume(j, p)
	if err != nil || next == 0 {
		return 0, uint64(version), err
	}
	if number == p.numberAfter(version, next-1) {
		return next, number, nil
	}
	if _, spoils := c.plan.spoils[p.id]; !spoils {
		return 0, 0, fmt.Errorf("the state of step %d is not the one that was reported", next)
	}
	if _, err := j.StepBack(); err != nil {
		return 0, 0, err
	}
	next, _, err = c.resume(j, p)
	return next, p.numberAfter(version, next-1), err
}
