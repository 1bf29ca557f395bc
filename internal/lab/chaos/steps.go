package chaos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spotworker/spotworker/internal/lab/labworker"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

// WorkerCommand is the first argument that makes the lab a worker, see
// [WorkerMain].
const WorkerCommand = "chaos-worker"

// WorkerMain runs the worker of a chaos run, the real program with one more kind,
// or the program of a job, if the command line asks for either. Otherwise it
// returns.
func WorkerMain() {
	if len(os.Args) > 1 && os.Args[1] == programCommand {
		os.Exit(programMain())
	}
	if len(os.Args) < 2 || os.Args[1] != WorkerCommand {
		return
	}
	labworker.Main(job.Kinds{stepsKind: job.HandlerFunc(Steps)}, os.Args[2:])
}

// stepsKind is the kind of the jobs of a chaos run.
const stepsKind = "steps"

// payload is the work of a job: a number of steps. It may have more fields, which
// only make it larger.
type payload struct {
	Seed   string        `json:"seed"`
	Steps  int           `json:"steps"`
	Each   time.Duration `json:"each"` // of a step, in nanoseconds
	Stream bool          `json:"stream,omitempty"`
}

// position is a state: how many steps are done, and their hash chain. A step that
// is skipped, done twice or done from another job's state changes the result.
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

// result is the result that the job must have.
func (p payload) result() []byte { return p.after(p.Steps).result() }

// after returns the position after that many steps.
func (p payload) after(steps int) position {
	at := p.start()
	for at.Step < min(steps, p.Steps) {
		at = at.next()
	}
	return at
}

// Steps is the handler of a chaos run. In each step it waits, hashes and reports.
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
		if retry.Sleep(ctx, p.Each) != nil {
			return nil, context.Cause(ctx)
		}
		at = at.next()
		if err := p.report(j, at); err != nil {
			return nil, err
		}
	}
	return at.result(), nil
}

// errMixed reports a state that was never saved. It makes the job poison, which
// the oracle finds unjust.
var errMixed = errors.New("the recorded state is not one that was reported")

// resume returns where to resume, after checking the whole recorded state.
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

// A streamed state is a header and some parts, each of the size of the blocks in which
// workers store states, so that two of them change in each step: the header and one part.
// The step determines the whole state, so a state with blocks of two saves is detected.
const (
	partSize = 1 << 20
	parts    = 2
)

// encodeStream returns the state at a step.
func (p payload) encodeStream(at position) io.ReadCloser {
	header, err := json.Marshal(at)
	if err != nil {
		panic(err) // numbers and bytes
	}
	var b bytes.Buffer
	b.Grow((parts + 1) * partSize)
	b.Write(header)
	b.Write(make([]byte, partSize-len(header)))
	for part := range parts {
		_, _ = b.Write(p.part(part, lastChange(part, at.Step))) // of a buffer: never fails
	}
	return io.NopCloser(&b)
}

// lastChange returns the last step up to this one in which a part changed.
func lastChange(part, step int) int {
	return step - (step-part+parts)%parts
}

// part returns the content of a part since that step.
func (p payload) part(part, since int) []byte {
	seed := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", p.Seed, part, since))
	content := make([]byte, partSize)
	_, _ = rand.NewChaCha8(seed).Read(content) // never fails
	return content
}

// decodeStream decodes a state and checks all of it.
func (p payload) decodeStream(whole []byte) (at position, err error) {
	header, _, _ := bytes.Cut(whole, []byte{0})
	if json.Unmarshal(header, &at) != nil {
		return position{}, job.Permanent(errMixed)
	}
	want, err := io.ReadAll(p.encodeStream(at))
	if err != nil {
		return position{}, err
	}
	if !bytes.Equal(whole, want) {
		return position{}, job.Permanent(errMixed)
	}
	return at, nil
}
