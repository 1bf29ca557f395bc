package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spotworker/spotworker"
	"github.com/spotworker/spotworker/job"
)

// WorkerCommand is the first argument that makes the lab a worker, see
// [WorkerMain].
const WorkerCommand = "chaos-worker"

// WorkerMain is the worker of a chaos run, if the command line asks for one: the
// real program with one more kind. It is the program of a job if that is what the
// command line asks for. Otherwise it returns.
func WorkerMain() {
	if len(os.Args) > 1 && os.Args[1] == programCommand {
		os.Exit(programMain())
	}
	if len(os.Args) < 2 || os.Args[1] != WorkerCommand {
		return
	}
	os.Args = append(os.Args[:1], os.Args[2:]...)
	spotworker.Main(job.Kinds{stepsKind: job.HandlerFunc(Steps)})
}

// stepsKind is the kind of the jobs of a chaos run.
const stepsKind = "steps"

// payload asks for a number of steps. It may have more fields, which only make
// it larger.
type payload struct {
	Seed   string        `json:"seed"`
	Steps  int           `json:"steps"`
	Each   time.Duration `json:"each"` // of a step, in nanoseconds
	Stream bool          `json:"stream,omitempty"`
}

// position is a state: how many steps are done, and what they came to. Each step
// hashes what the one before came to, so a step that is left out, done twice or
// done from another job's state shows in the result.
type position struct {
	Step  int    `json:"step"`
	Chain []byte `json:"chain"`
}

func (p payload) start() position {
	sum := sha256.Sum256([]byte(p.Seed))
	return position{Chain: sum[:]}
}

func (p position) next() position {
	sum := sha256.Sum256(fmt.Appendf(nil, "%x %d", p.Chain, p.Step))
	return position{Step: p.Step + 1, Chain: sum[:]}
}

func (p position) result() []byte { return []byte(hex.EncodeToString(p.Chain)) }

// result is what a job must come to.
func (p payload) result() []byte { return p.after(p.Steps).result() }

// after is the position after so many steps.
func (p payload) after(steps int) position {
	at := p.start()
	for at.Step < min(steps, p.Steps) {
		at = at.next()
	}
	return at
}

// Steps is the handler of a chaos run. It waits, hashes and reports, step by step.
func Steps(ctx context.Context, j *job.Job) ([]byte, error) {
	var p payload
	if err := json.Unmarshal(j.Payload, &p); err != nil {
		return nil, job.Permanent(err)
	}
	if err := j.CheckVersion(0); err != nil {
		return nil, err
	}
	at, err := p.resume(j)
	if err != nil {
		return nil, err
	}
	for at.Step < p.Steps {
		if !sleep(ctx, p.Each) {
			return nil, context.Cause(ctx)
		}
		at = at.next()
		if err := p.report(j, at); err != nil {
			return nil, err
		}
	}
	return at.result(), nil
}

// errMixed says that a state is not one that was ever reported. It ends the job
// as poison, which a run counts as broken.
var errMixed = errors.New("the recorded state is not one that was reported")

// resume returns where to go on, having looked at all of the recorded state.
func (p payload) resume(j *job.Job) (at position, err error) {
	state, _, err := j.OpenSaved()
	switch {
	case err != nil:
		return position{}, err
	case state == nil:
		return p.start(), nil
	}
	defer state.Close()
	whole, err := io.ReadAll(state)
	if err != nil {
		return position{}, err
	}
	if p.Stream {
		return p.decodeStream(whole)
	}
	if err := json.Unmarshal(whole, &at); err != nil {
		return position{}, job.Permanent(errMixed)
	}
	return at, nil
}

func (p payload) report(j *job.Job, at position) error {
	progress := job.Progress{Fraction: float64(at.Step) / float64(p.Steps), Text: fmt.Sprintf("step %d", at.Step)}
	if p.Stream {
		progress.Stream = func() (io.ReadCloser, error) { return p.encodeStream(at), nil }
	} else {
		state, err := json.Marshal(at)
		if err != nil {
			return err
		}
		progress.State = state
	}
	j.Report(progress)
	return nil
}
