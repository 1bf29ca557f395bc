package histories

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// plannedFollowUp is a job that the handler of another one puts.
type plannedFollowUp struct {
	parent string
	name   string
	id     string
	step   int // of the parent, after which it is put
	delay  time.Duration
}

// planFollowUps makes some jobs put follow-up jobs. These may need inputs, have deadlines
// and be cancelled, also before they are put. It draws last, with a random source of its own.
func (p *plan) planFollowUps() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0xf0110))}
	for _, parent := range p.jobs {
		if !r.oneIn(4) {
			continue
		}
		for n := range 1 + r.IntN(2) {
			p.planFollowUp(r, parent, fmt.Sprintf("follow-up %d", n))
		}
	}
}

func (p *plan) planFollowUp(r *random, parent *plannedJob, name string) {
	f := plannedFollowUp{parent: parent.id, name: name, id: job.New(job.Spec{ID: parent.id}, nil).Key(name), step: r.IntN(parent.steps)}
	if r.oneIn(2) {
		f.delay = r.between(0, 30*time.Second).Truncate(time.Second)
	}
	child := &plannedJob{id: f.id, kind: "chain", steps: 1 + r.IntN(10), each: r.between(200*time.Millisecond, 3*time.Second)}
	p.jobs, p.followUps, p.mix.chosenIDs[f.id] = append(p.jobs, child), append(p.followUps, f), true
	p.storing[f.id] = r.oneIn(4)
	if s, ok := p.silences[parent.id]; ok {
		s.limit = longestSilence
		p.silences[parent.id] = s
	}
	if r.oneIn(3) {
		p.inputs[f.id] = plannedInput{}
	}
	if r.oneIn(3) {
		due := plannedDeadline{at: r.between(0, p.ends), estimate: r.between(time.Second, time.Minute).Truncate(time.Second)}
		if p.deadlines == nil {
			p.deadlines = map[string]plannedDeadline{}
		}
		p.deadlines[f.id] = due
	}
	if r.oneIn(4) {
		p.cancels = append(p.cancels, plannedCancel{at: r.between(time.Second, p.ends), job: f.id, crash: rig.CrashPoint(1 + r.IntN(3))})
	}
}

// putFollowUps puts the follow-up jobs that a job has after a step.
func (c *chain) putFollowUps(ctx context.Context, j *job.Job, step int) error {
	for _, f := range c.plan.followUps {
		if f.parent != j.ID || f.step != step {
			continue
		}
		next := job.FollowUp{Name: f.name, Kind: c.plan.job(f.id).kind, Delay: f.delay}
		if _, ok := c.plan.inputs[f.id]; ok {
			next.Inputs = inputOf(f.id)
		}
		if due, ok := c.plan.deadlines[f.id]; ok {
			next.Deadline, next.Estimate = c.startedAt().Add(due.at), due.estimate
		}
		id, err := j.Put(ctx, next)
		if err == nil && id != f.id {
			err = job.Permanent(fmt.Errorf("the follow-up job has id %s, want %s", id, f.id))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) isFollowUp(id string) bool { return p.parentOf(id) != "" }

// parentOf returns the job that puts a follow-up job; empty for another job.
func (p *plan) parentOf(id string) string {
	for _, f := range p.followUps {
		if f.id == id {
			return f.parent
		}
	}
	return ""
}

// wasPut reports whether a follow-up job exists, and checks that it does if its parent is
// done.
func (h *history) wasPut(j *plannedJob) bool {
	if h.recorder.WasPut(j.id) || h.b.Record(j.id).Status != "" {
		h.count(&h.followUpsPut)
		return true
	}
	parent := h.parentOf(j.id)
	if h.b.Record(parent).Status == checkpoint.Done {
		h.t.Errorf("job %s is done, and its follow-up job %s was never put\n%s", parent, j.id, h.recorder.HistoryOf(parent))
	}
	return false
}
