package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/job"
)

// chain does the jobs of a history. Each step makes a number from the one before
// it, and the last is the result: one that was reached by way of a state that was
// never reported, or of somebody else's, is another.
type chain struct {
	plan    *plan
	ledger  *ledger
	isFixed func(id string) bool // a hopeless job succeeds all the same

	mu     sync.Mutex
	failed map[failedStep]time.Time // when a job failed at a step
}

// failedStep is a step at which a job fails once.
type failedStep struct {
	job  string
	step int
}

func (p *plan) job(id string) *plannedJob {
	for _, j := range p.jobs {
		if j.id == id {
			return j
		}
	}
	return nil
}

// nextNumber makes a number from the one before it.
func nextNumber(id string, step int, before uint64) uint64 {
	for i := range len(id) {
		before = (before ^ uint64(id[i])) * 1099511628211
	}
	return (before ^ uint64(step)) * 1099511628211
}

// result is what the job must come to.
func (j *plannedJob) result() []byte {
	var number uint64
	for step := range j.steps {
		number = nextNumber(j.id, step, number)
	}
	return fmt.Appendf(nil, "%016x", number)
}

func (c *chain) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	p := c.plan.job(j.ID)
	if p == nil || p.payload != nil && !bytes.Equal(j.Payload, p.payload) {
		return nil, job.Permanent(errors.New("this is not the payload that was put"))
	}
	next, number, err := c.resume(j, p)
	if err != nil {
		return nil, err
	}
	for ; next < p.steps; next++ {
		if err := p.runStep(ctx); err != nil {
			return nil, err
		}
		if c.fails(p, next) {
			return nil, errors.New("this step fails once")
		}
		number = nextNumber(p.id, next, number)
		if !p.noReports {
			j.Report(p.progress(next+1, number))
		}
	}
	if p.alwaysFails && !c.isFixed(p.id) {
		return nil, job.Permanent(errors.New("it cannot be done"))
	}
	return fmt.Appendf(nil, "%016x", number), nil
}

// runStep is one step, and what the job says when it is stopped.
func (j *plannedJob) runStep(ctx context.Context) error {
	step := time.NewTimer(j.each)
	defer step.Stop()
	select {
	case <-step.C:
		return nil
	case <-ctx.Done():
	}
	if j.finishesStep {
		<-step.C
	}
	if j.failsWhenStopped {
		return job.Permanent(errors.New("somebody disturbed me"))
	}
	return context.Cause(ctx)
}

// fails reports whether the handler is to fail at this step, which it does once:
// two deliveries that come to it at the same moment both fail, since chance must
// not decide which.
func (c *chain) fails(p *plannedJob, step int) bool {
	if !slices.Contains(p.failsAt, step) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at, now := failedStep{p.id, step}, time.Now()
	if was, ok := c.failed[at]; ok && !was.Equal(now) {
		return false
	}
	c.failed[at] = now
	c.ledger.handlerFailed(p.id, "handler")
	return true
}

func (j *plannedJob) progress(next int, number uint64) job.Progress {
	state := binary.BigEndian.AppendUint32(nil, uint32(next))
	state = binary.BigEndian.AppendUint64(state, number)
	report := job.Progress{Fraction: float64(next) / float64(j.steps)}
	if j.large {
		report.Stream = func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(state), bytes.NewReader(padding))), nil
		}
		return report
	}
	report.State = state
	return report
}

// resume returns where the job continues.
func (c *chain) resume(j *job.Job, p *plannedJob) (next int, number uint64, err error) {
	var state []byte
	if p.large {
		state, err = readStream(j)
	} else {
		state, _, _ = j.Saved()
	}
	if len(state) < 12 || err != nil {
		return 0, 0, err
	}
	return int(binary.BigEndian.Uint32(state)), binary.BigEndian.Uint64(state[4:]), nil
}

// padding is what follows the number in a large state: with it, it is kept in two
// blocks, the first of which changes.
var padding = make([]byte, 1<<20)

// readStream returns a streamed state, nil on a fresh start.
func readStream(j *job.Job) ([]byte, error) {
	r, _, err := j.OpenSaved()
	if r == nil || err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(r)
}
