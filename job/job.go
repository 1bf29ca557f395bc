package job

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"sync/atomic"
	"time"
)

// MaxResult is the largest result a handler may return, in bytes. A larger one
// belongs in a blob of the handler's own, with its name as the result.
const MaxResult = 1 << 20

// MaxState is the largest state a handler may report in one piece, in bytes. A
// larger one is reported as a stream, up to [MaxStream].
const MaxState = 8 << 20

// MaxStream is the largest state a handler may report as a stream, in bytes.
const MaxStream = 32 << 30

// Handler does the work of one kind of job.
//
// Run returns the job's result (at most [MaxResult] bytes, nil for none) or an error;
// the package documentation describes the meaning of each error. When ctx is cancelled,
// Run must return within half of the drain budget, 5 seconds by default, with an error
// unless the job is finished. A handler that does not is abandoned, and its last report
// is saved. Run is called from many goroutines at once, one per job.
type Handler interface {
	Run(ctx context.Context, j *Job) (result []byte, err error)
}

// HandlerFunc is a function that implements [Handler].
type HandlerFunc func(ctx context.Context, j *Job) ([]byte, error)

// Run calls f.
func (f HandlerFunc) Run(ctx context.Context, j *Job) ([]byte, error) { return f(ctx, j) }

// Kinds maps the name of a kind to its handler.
type Kinds map[string]Handler

// Spec describes a job. The worker fills it, and so do tests of a handler.
type Spec struct {
	// ID identifies the job. One id has one outcome, however often it is enqueued.
	ID string

	// Kind names the handler.
	Kind string

	// Payload is the producer's input: a JSON value as compact text, or any bytes. The
	// handler must not change it. A handler that needs a large payload only at its
	// start calls [Job.DropPayload] afterwards.
	Payload []byte

	// Attempt is 1 plus the failures in a row so far. Evictions do not count.
	Attempt int

	// Deadline is when the producer wants the job to be done; zero if it gave none.
	// The worker does not enforce it.
	Deadline time.Time

	// Trace is the W3C traceparent of this run, for calls that continue the job's trace.
	// It names the worker's span, or the producer's span if the worker records no traces;
	// it is empty if there is neither. The context of [Handler] has the same span for
	// code that uses OpenTelemetry.
	Trace string
}

// Job is one run of a job, as its handler sees it.
type Job struct {
	Spec

	saved    *Progress
	latest   atomic.Pointer[Progress]
	reported int // number of states so far
	onReport func(*Progress)
	onDrop   func()
	onPut    func(context.Context, string, FollowUp) error
	outputs  Outputs
	cleanups []func()

	inputFolder string
	inputs      []InputFile

	beforeSave   atomic.Pointer[func(context.Context) error]
	saveInterval func(cost time.Duration) time.Duration
}

// New returns a job. saved is the last checkpoint, nil on a fresh start.
func New(spec Spec, saved *Progress) *Job {
	return &Job{Spec: spec, saved: saved}
}

// Saved returns the state of the last checkpoint, and the version that the handler
// gave it. ok is false on a fresh start. It panics if the state is a stream of a MiB
// or more: read states that were reported as streams with [Job.OpenSaved].
func (j *Job) Saved() (state []byte, version int, ok bool) {
	switch {
	case !j.saved.HasState():
		return nil, 0, false
	case j.saved.Stream != nil:
		panic("job: the recorded state is a stream: read it with OpenSaved")
	}
	return j.saved.State, j.saved.Version, true
}

// OpenSaved returns the state of the last checkpoint as a stream, and the version that
// the handler gave it. The stream is nil on a fresh start. The handler must close it;
// until it has done so, or has read it to its end, no new state is saved. A read fails
// if the checkpoint is damaged or another worker has the job.
func (j *Job) OpenSaved() (state io.ReadCloser, version int, err error) {
	switch {
	case !j.saved.HasState():
		return nil, 0, nil
	case j.saved.Stream == nil:
		return io.NopCloser(bytes.NewReader(j.saved.State)), j.saved.Version, nil
	}
	state, err = j.saved.Stream()
	return state, j.saved.Version, err
}

// Report reports progress. It only stores a pointer, which takes less than 100 ns, so
// call it whenever there is progress. The worker decides when to save a report; after
// a notice it always saves the last one. Only one goroutine at a time may call Report.
func (j *Job) Report(p Progress) {
	last := j.latest.Load()
	switch {
	case p.HasState():
		j.reported++
		p.number = j.reported
	case last != nil:
		p.State, p.Stream, p.Version, p.Needs, p.number = last.State, last.Stream, last.Version, last.Needs, last.number
	}
	j.latest.Store(&p)
	if j.onReport != nil {
		j.onReport(&p)
	}
}

// DropPayload releases the payload's memory for the payloads of other jobs, since the
// worker limits the memory of all large payloads. Payload is nil afterwards. Like
// Report, it is for the goroutine that runs the handler.
func (j *Job) DropPayload() {
	j.Payload = nil
	if j.onDrop != nil {
		j.onDrop()
	}
}

// Cleanup registers a function to call at the end of this run of the job: after Run has
// returned, and the last state was saved or discarded. The function that was registered
// last is called first. Like Report, it is for the goroutine that runs the handler.
func (j *Job) Cleanup(f func()) { j.cleanups = append(j.cleanups, f) }

// Key returns an idempotency key for a named side effect of this job: the same
// on every attempt and every worker, different for every job and effect.
func (j *Job) Key(effect string) string {
	sum := sha256.Sum256([]byte(j.ID + "\x00" + effect))
	return hex.EncodeToString(sum[:16])
}
