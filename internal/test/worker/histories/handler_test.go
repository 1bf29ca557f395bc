package histories

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

	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// chain is the handler of a history's jobs. Each step computes a number from the one
// before, and the last is the result. A job that resumes from a state that it never
// reported, or from another job's, ends with a different result.
type chain struct {
	*steps
	on host // where it freezes processes; zero for states of its own
}

// steps are the facts that the handlers of all workers share.
type steps struct {
	plan      *plan
	recorder  *recorder.Recorder
	isFixed   func(id string) bool // a job that always fails succeeds once this is true
	startedAt func() time.Time     // when the history began

	mu     sync.Mutex
	failed map[failedStep]time.Time // when that step failed
	hung   map[failedStep]bool      // the steps at which the handler was silent
}

// failedStep is a step of a job that failed once.
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

// nextNumber computes the number of a step from the one before.
func nextNumber(id string, step int, before uint64) uint64 {
	for i := range len(id) {
		before = (before ^ uint64(id[i])) * 1099511628211
	}
	return (before ^ uint64(step)) * 1099511628211
}

// result returns the expected result of the job, with a version of its inputs.
func (j *plannedJob) result(version int) []byte {
	return []byte(numberText(j.numberAfter(version, j.steps-1)))
}

func (c *chain) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	p := c.plan.job(j.ID)
	if p == nil || p.payload != nil && !bytes.Equal(j.Payload, p.payload) {
		return nil, job.Permanent(errors.New("this is not the payload that was put"))
	}
	defer c.countSilence(ctx, p)
	version, err := c.readInputs(j)
	if err != nil {
		return nil, err
	}
	next, number, err := c.resume(j, p)
	if err != nil {
		return nil, err
	}
	if next == 0 {
		number = uint64(version)
	} else if number != p.numberAfter(version, next-1) {
		return nil, fmt.Errorf("the state of step %d is not the one that was reported", next)
	}
	for ; next < p.steps; next++ {
		if err := p.runStep(ctx); err != nil {
			return nil, err
		}
		if c.hangs(p, next) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		if c.fails(p, next) {
			return nil, errors.New("this step fails once")
		}
		number = nextNumber(p.id, next, number)
		if err := c.send(ctx, j, next, number); err != nil {
			return nil, err
		}
		if err := c.putFollowUps(ctx, j, next); err != nil {
			return nil, err
		}
		if p.prints() {
			job.Print(ctx, "stdout", rig.LogLineOf(p.id, next))
		}
		if !p.noReports {
			j.Report(p.progress(next+1, number, c.on))
		}
	}
	if p.alwaysFails && !c.isFixed(p.id) {
		return nil, job.Permanent(errors.New("it cannot be done"))
	}
	return []byte(numberText(number)), nil
}

// prints reports whether the handler prints a line at each step.
func (j *plannedJob) prints() bool { return j.steps%2 == 1 }

// runStep runs one step. When the job is stopped, it returns the error that the plan
// asks for.
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
		return job.Permanent(errors.New("failed because it was stopped"))
	}
	return context.Cause(ctx)
}

// fails reports whether the handler must fail at this step. Each such step fails once.
// Two deliveries that reach it at the same moment both fail, so that the outcome does
// not depend on scheduling.
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
	c.recorder.HandlerFailed(p.id, "handler")
	return true
}

func (j *plannedJob) progress(next int, number uint64, on host) job.Progress {
	state := binary.BigEndian.AppendUint32(nil, uint32(next))
	state = binary.BigEndian.AppendUint64(state, number)
	report := job.Progress{Fraction: float64(next) / float64(j.steps)}
	state = on.freeze(&report, state)
	if j.large {
		report.Stream = func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(state), bytes.NewReader(padding))), nil
		}
		return report
	}
	report.State = state
	return report
}

// resume returns the next step and the number before it.
func (c *chain) resume(j *job.Job, p *plannedJob) (next int, number uint64, err error) {
	var state []byte
	var version int
	if p.large {
		state, version, err = readStream(j)
	} else {
		state, version, _ = j.Saved()
	}
	if len(state) < stateSize || err != nil {
		return 0, 0, err
	}
	if err := c.checkThaw(j, version, state); err != nil {
		return 0, 0, err
	}
	return int(binary.BigEndian.Uint32(state)), binary.BigEndian.Uint64(state[4:]), nil
}

// stateSize is the size of a step and its number in a state, in bytes.
const stateSize = 12

// padding follows the number in a large state, which is then stored in two blocks; the
// first changes.
var padding = make([]byte, 1<<20)

// readStream returns a streamed state and its version; nil on a fresh start.
func readStream(j *job.Job) (state []byte, version int, err error) {
	r, version, err := j.OpenSaved()
	if r == nil || err != nil {
		return nil, 0, err
	}
	defer func() { _ = r.Close() }()
	state, err = io.ReadAll(r)
	return state, version, err
}
