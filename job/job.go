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
// Run returns the job's result (at most [MaxResult] bytes, nil for none) or an
// error; the package documentation says what each error means. When ctx is
// cancelled it must return soon, with an error unless the job is finished: half of the drain budget, 5 seconds by default.
// A handler that does not is abandoned; its last report is saved without it.
// Run is called from many goroutines at once, one per job.
type Handler interface {
	Run(ctx context.Context, j *Job) (result []byte, err error)
}

// HandlerFunc lets a function be a [Handler].
type HandlerFunc func(ctx context.Context, j *Job) ([]byte, error)

// Run calls f.
func (f HandlerFunc) Run(ctx context.Context, j *Job) ([]byte, error) { return f(ctx, j) }

// Kinds maps a kind's name to the handler that does its jobs.
type Kinds map[string]Handler

// Spec is what a job is made of. The worker fills it; tests of a handler do too.
type Spec struct {
	// ID identifies the job. One id has one outcome, however often it is enqueued.
	ID string

	// Kind names the handler.
	Kind string

	// Payload is the producer's input: the compact text of a JSON value, or
	// any bytes. The handler must not change it. One that needs a large payload
	// only at its start calls [Job.DropPayload] afterwards.
	Payload []byte

	// Attempt is 1 plus the failures in a row so far. Evictions do not count.
	Attempt int

	// Deadline is when the producer wants the job done; zero when it gave none.
	// It is information: the worker does not enforce it.
	Deadline time.Time
}

// Job is one job in the hands of a handler.
type Job struct {
	Spec

	saved    *Progress
	latest   atomic.Pointer[Progress]
	reported int // states so far
	onReport func(*Progress)
	onDrop   func()
	cleanups []func()
}

// New returns a job as a handler sees it. saved is the progress recorded last,
// nil on a fresh start.
func New(spec Spec, saved *Progress) *Job {
	return &Job{Spec: spec, saved: saved}
}

// Saved returns the state recorded last and the version the handler gave it.
// ok is false on a fresh start. It panics if the state was a stream of a MiB or
// more: what was reported as a stream is read with [Job.OpenSaved].
func (j *Job) Saved() (state []byte, version int, ok bool) {
	switch {
	case !j.saved.HasState():
		return nil, 0, false
	case j.saved.Stream != nil:
		panic("job: the recorded state is a stream: read it with OpenSaved")
	}
	return j.saved.State, j.saved.Version, true
}

// OpenSaved returns the state recorded last as a stream, and the version the
// handler gave it. The stream is nil on a fresh start. The handler closes it;
// until it does, or has read it to its end, no new state is saved. A read fails
// when the recorded state is damaged or the job went to another worker.
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

// Report tells the worker how far the job is. It stores a pointer and returns,
// within 100 ns: call it as often as there is something to tell. The worker
// decides when a report is worth a write; after a notice the last one is always
// written. Report is for the goroutine that runs the handler, or one at a time.
func (j *Job) Report(p Progress) {
	last := j.Latest()
	switch {
	case p.HasState():
		j.reported++
		p.number = j.reported
	case last != nil:
		p.State, p.Stream, p.Version, p.number = last.State, last.Stream, last.Version, last.number
	}
	j.latest.Store(&p)
	if j.onReport != nil {
		j.onReport(&p)
	}
}

// OnReport has f called by every later [Job.Report], with what [Job.Latest]
// returns from then on, in the goroutine that reports. It is for whoever calls a
// handler and needs to see each report: a worker that bounds their silence, and
// package jobtest. Without it a report is only looked at when it is worth a write.
func (j *Job) OnReport(f func(*Progress)) { j.onReport = f }

// DropPayload gives up the payload, so that its memory can be used for another
// job's: the worker bounds the memory of all large payloads. Payload is nil
// afterwards. Like Report it is for the goroutine that runs the handler.
func (j *Job) DropPayload() {
	j.Payload = nil
	if j.onDrop != nil {
		j.onDrop()
	}
}

// OnDropPayload has f called by [Job.DropPayload]. It is for the worker.
func (j *Job) OnDropPayload(f func()) { j.onDrop = f }

// Cleanup registers a function that is called when the worker is done with this
// run of the job: after Run has returned and the last state was recorded, or was
// given up. The last one registered is called first. Like Report it is for the
// goroutine that runs the handler.
func (j *Job) Cleanup(f func()) { j.cleanups = append(j.cleanups, f) }

// Close calls what was registered with [Job.Cleanup], all of it even if one of
// the functions panics. The worker calls it; so does a test of a handler.
func (j *Job) Close() {
	cleanups := j.cleanups
	j.cleanups = nil
	for _, f := range cleanups {
		defer f() //nolint:gocritic // deferred calls run in reverse and go on after a panic, as is wanted
	}
}

// Latest returns the last report of this run, or nil. The worker reads it; so
// can a test.
func (j *Job) Latest() *Progress { return j.latest.Load() }

// Key returns an idempotency key for a named side effect of this job: the same
// on every attempt and every worker, different for every job and effect.
func (j *Job) Key(effect string) string {
	sum := sha256.Sum256([]byte(j.ID + "\x00" + effect))
	return hex.EncodeToString(sum[:16])
}
