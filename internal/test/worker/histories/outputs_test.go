package histories

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// mixOutputs makes some jobs store an output with each step, with a random source of its
// own.
func (p *plan) mixOutputs() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0x0f11e5))}
	p.storing = map[string]bool{}
	for _, j := range p.jobs {
		if r.oneIn(4) {
			p.storing[j.id] = true
		}
	}
}

// expectOutputs makes the recorder judge the outputs of those jobs.
func (h *history) expectOutputs() {
	for _, j := range h.plan.jobs {
		if h.storing[j.id] {
			h.recorder.ExpectOutputs(j.id, recorder.ExpectedOutputs{Steps: j.steps,
				Content: func(step int) string { return numberText(j.numberAfter(h.versions[j.id], step)) }})
		}
	}
}

// send stores the output of a step, if the job stores any.
func (c *chain) send(ctx context.Context, j *job.Job, step int, number uint64) error {
	if !c.plan.storing[j.ID] {
		return nil
	}
	return j.SendOutput(ctx, rig.StepFile(step), strings.NewReader(numberText(number)))
}

func numberText(number uint64) string { return fmt.Sprintf("%016x", number) }

// numberAfter returns the number that a step computes, with a version of the job's inputs.
func (j *plannedJob) numberAfter(version, step int) (number uint64) {
	number = uint64(version)
	for i := range step + 1 {
		number = nextNumber(j.id, i, number)
	}
	return number
}
