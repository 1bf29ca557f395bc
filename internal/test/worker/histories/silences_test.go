package histories

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// plannedSilence is a limit of a job's silence, and the step at which its handler exceeds it
// once.
type plannedSilence struct {
	limit time.Duration
	step  int
}

// longestSilence is the limit of jobs that call storage: faults keep them silent for minutes.
const longestSilence = 15 * time.Minute

// mixFailures makes some jobs with large states fail. It has a random source of its own, as
// the functions below have.
func (p *plan) mixFailures() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0xfa11))}
	for _, j := range p.jobs {
		j.alwaysFails = j.alwaysFails || j.large && r.oneIn(3)
	}
}

// mixSilences gives some jobs limits, and makes their handlers hang once.
func (p *plan) mixSilences() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0x511e))}
	p.silences = map[string]plannedSilence{}
	for _, j := range p.jobs {
		if j.noReports || !r.oneIn(5) {
			continue
		}
		s := plannedSilence{limit: longestSilence, step: r.IntN(j.steps)}
		if !p.storing[j.id] && r.oneIn(2) {
			s.limit = r.between(15*time.Second, 2*time.Minute).Truncate(time.Second)
		}
		p.silences[j.id] = s
	}
}

// setLimits sets the limits of a job's message.
func (h *history) setLimits(e *queue.Envelope) {
	if s, ok := h.silences[e.ID]; ok {
		e.MaxSilence, e.MaxRun = s.limit, 24*time.Hour
	}
}

// hangs reports whether the handler must be silent at this step, which it is once.
func (c *chain) hangs(p *plannedJob, step int) bool {
	s, ok := c.plan.silences[p.id]
	if !ok || s.step != step {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := failedStep{p.id, step}
	was := c.hung[at]
	c.hung[at] = true
	return !was
}

// endSilence keeps the handler of a job from hanging: the message that an operator enqueues for its
// record has no limits, so nothing would stop the handler.
func (c *chain) endSilence(id string) {
	if s, ok := c.plan.silences[id]; ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hung[failedStep{id, s.step}] = true
	}
}

// countSilence records that a handler was stopped because it exceeded a limit, which is a
// failure.
func (c *chain) countSilence(ctx context.Context, p *plannedJob) {
	if stop := job.StopOf(ctx); stop != nil && stop.Reason == job.Silent {
		c.recorder.HandlerFailed(p.id, "handler")
	}
}
