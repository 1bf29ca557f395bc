package rig

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/job"
)

// Echo returns its payload at once.
var Echo = job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) { return j.Payload, nil })

// Steps is a handler of n steps of equal length. It reports each one, and counts
// how often each step of each job was finished.
type Steps struct {
	N    int
	Each time.Duration

	mu   sync.Mutex
	runs map[string][]int
}

// AtLeast returns a condition for waitFor: every job has done n steps.
func (s *Steps) AtLeast(ids []string, n int) func() bool {
	return func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return s.Done(id) < n })
	}
}

// Run implements job.Handler.
func (s *Steps) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	next := 0
	if state, _, ok := j.Saved(); ok {
		next = int(binary.BigEndian.Uint32(state))
	}
	return s.RunFrom(ctx, j, next, func(n int) job.Progress {
		return job.Progress{State: binary.BigEndian.AppendUint32(nil, uint32(n))}
	})
}

// RunFrom does the steps from number next on, and reports what progress returns
// for the number of steps done.
func (s *Steps) RunFrom(ctx context.Context, j *job.Job, next int, progress func(n int) job.Progress) ([]byte, error) {
	for ; next < s.N; next++ {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(s.Each):
		}
		s.Ran(j.ID, next)
		p := progress(next + 1)
		p.Fraction, p.Text = float64(next+1)/float64(s.N), fmt.Sprintf("%d of %d", next+1, s.N)
		j.Report(p)
	}
	return []byte("finished"), nil
}

// Ran counts a step as finished.
func (s *Steps) Ran(id string, step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[string][]int{}
	}
	for len(s.runs[id]) <= step {
		s.runs[id] = append(s.runs[id], 0)
	}
	s.runs[id][step]++
}

// Repeated returns how many steps of the job were finished more than once.
func (s *Steps) Repeated(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, runs := range s.runs[id] {
		n += runs - 1
	}
	return n
}

// Forget resets the counts of all steps.
func (s *Steps) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = nil
}

// Done returns how many steps of the job were finished at least once.
func (s *Steps) Done(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs[id])
}

// Jobs returns how many jobs finished at least one step.
func (s *Steps) Jobs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs)
}

// Stubborn is a handler that reports once and then ignores its context until the
// test calls finish.
type Stubborn struct{ end chan struct{} }

// NewStubborn returns a Stubborn handler.
func NewStubborn() *Stubborn { return &Stubborn{end: make(chan struct{})} }

// Run implements job.Handler.
func (s *Stubborn) Run(_ context.Context, j *job.Job) ([]byte, error) {
	j.Report(job.Progress{State: []byte("here")})
	<-s.end
	return nil, nil
}

// Finish lets the handler return.
func (s *Stubborn) Finish() { close(s.end) }

// Restless is a handler that ignores its context and keeps reporting new states until the
// test calls Finish.
type Restless struct {
	Running atomic.Int64
	end     chan struct{}
}

// NewRestless returns a Restless handler.
func NewRestless() *Restless { return &Restless{end: make(chan struct{})} }

// Run implements job.Handler.
func (r *Restless) Run(_ context.Context, j *job.Job) ([]byte, error) {
	r.Running.Add(1)
	defer r.Running.Add(-1)
	for n := uint64(0); ; n++ {
		j.Report(job.Progress{State: binary.BigEndian.AppendUint64(nil, n), Fraction: 0.5})
		select {
		case <-r.end:
			return nil, nil
		case <-time.After(100 * time.Microsecond):
		}
	}
}

// Finish lets the handler return.
func (r *Restless) Finish() { close(r.end) }

// SteadyReporter is a handler that reports a new state every second until it is
// stopped, and counts its running jobs.
type SteadyReporter struct{ Running atomic.Int64 }

// Run implements job.Handler.
func (c *SteadyReporter) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	c.Running.Add(1)
	defer c.Running.Add(-1)
	for n := uint64(0); ; n++ {
		j.Report(job.Progress{State: binary.BigEndian.AppendUint64(nil, n)})
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

// Printing is steps with a line of 300 bytes for each step; four do not fit into a
// record.
type Printing struct{ *Steps }

// Run implements job.Handler.
func (p *Printing) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	next := 0
	if state, _, ok := j.Saved(); ok {
		next = int(binary.BigEndian.Uint32(state))
	}
	for i := range 4 {
		job.Print(ctx, joblog.Stdout, LogLineOf(j.ID, -i))
	}
	result, err := p.RunFrom(ctx, j, next, func(n int) job.Progress {
		job.Print(ctx, joblog.Stdout, LogLineOf(j.ID, n))
		return job.Progress{State: binary.BigEndian.AppendUint32(nil, uint32(n))}
	})
	if err == nil {
		job.Print(ctx, joblog.Stdout, LastLineOf(j.ID))
	}
	return result, err
}

// Storing is steps that stores a file at each step before it reports.
type Storing struct{ *Steps }

// Run implements job.Handler.
func (s *Storing) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	next := 0
	if state, _, ok := j.Saved(); ok {
		next = int(binary.BigEndian.Uint32(state))
	}
	var failed error
	stop, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	result, err := s.RunFrom(stop, j, next, func(n int) job.Progress {
		if failed = j.SendOutput(ctx, StepFile(n-1), strings.NewReader(stepContent(j.ID, n-1))); failed != nil {
			cancel(failed)
			return job.Progress{}
		}
		return job.Progress{State: binary.BigEndian.AppendUint32(nil, uint32(n))}
	})
	if failed != nil {
		return nil, failed
	}
	return result, err
}

// StepFile returns the name of the file that a step stores.
func StepFile(n int) string { return fmt.Sprintf("steps/%02d", n) }

// StepOutputs are the outputs of a job whose handler is storing.
func StepOutputs(id string) recorder.ExpectedOutputs {
	return recorder.ExpectedOutputs{Steps: StoredSteps, Content: func(step int) string { return stepContent(id, step) }}
}

// ReadInputs returns the names and the contents of a job's inputs.
func ReadInputs(j *job.Job) (string, error) {
	var out strings.Builder
	for _, file := range j.Inputs() {
		data, err := os.ReadFile(file.File)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "%s=%s;", file.Name, data)
	}
	return out.String(), nil
}

// LogLineOf returns the line of a step of a job.
func LogLineOf(id string, step int) []byte {
	return fmt.Appendf(nil, "%s step %d %s", id, step, strings.Repeat("x", 280))
}

// LargeProgress is a progress with a state that is stored in blocks.
func LargeProgress(n int) job.Progress {
	return job.Progress{Fraction: float64(n) / 1000, Version: 3, Stream: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(LargeState(n))), nil
	}}
}

// LargeState returns a state of largeSize bytes that begins with n. The rest is
// always the same.
func LargeState(n int) []byte {
	state := slices.Clone(largeStates())
	binary.BigEndian.PutUint32(state, uint32(n))
	return state
}

// largeStates returns the bytes that all large states have in common, each page of 4 KiB
// its own.
var largeStates = sync.OnceValue(func() []byte {
	var state []byte
	for n := 0; len(state) < LargeSize; n++ {
		state = append(state, bytes.Repeat([]byte{byte(n)}, 4<<10)...)
	}
	return state[:LargeSize]
})

// LargeSize is the length of the states in this file, in bytes: several blocks,
// and more than one call to read.
const LargeSize = 5<<20 + 5

// LastLineOf returns the last line of a job that prints.
func LastLineOf(id string) []byte { return []byte(id + " has printed its last line") }

func stepContent(id string, n int) string { return fmt.Sprintf("step %d of %s", n, id) }

// StoredSteps is the number of steps of a job that stores.
const StoredSteps = 24
