package job

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync/atomic"
	"time"
)

// MaxResult is the largest result a handler may return, in bytes. A larger one
// belongs in a blob of the handler's own, with its name as the result.
const MaxResult = 1 << 20

// MaxState is the largest state a handler may report, in bytes.
const MaxState = 8 << 20

// Handler does the work of one kind of job.
//
// Run returns the job's result (at most [MaxResult] bytes, nil for none) or an
// error; the package documentation says what each error means. When ctx is
// cancelled it must return soon: half of the drain budget, 5 seconds by default.
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
	// any bytes. The handler must not change it.
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

	saved  *Progress
	latest atomic.Pointer[Progress]
}

// Progress is one report of how far a job is.
type Progress struct {
	// State is what the handler needs in order to go on from here, at most
	// [MaxState] bytes. Nil means "as reported before". Report keeps the
	// slice: hand over a fresh one each time, or one that never changes.
	State []byte

	// Version is the handler's own number for the format of State, handed back
	// with it, so that a newer program can refuse or convert an old state.
	Version int

	// Fraction is the part done, 0 to 1, for humans and estimates. Optional.
	Fraction float64

	// Text is a short status for humans, cut to 200 bytes when recorded. Optional.
	Text string
}

// New returns a job as a handler sees it. saved is the progress recorded last,
// nil on a fresh start.
func New(spec Spec, saved *Progress) *Job {
	return &Job{Spec: spec, saved: saved}
}

// Saved returns the state recorded last and the version the handler gave it.
// ok is false on a fresh start.
func (j *Job) Saved() (state []byte, version int, ok bool) {
	if j.saved == nil || j.saved.State == nil {
		return nil, 0, false
	}
	return j.saved.State, j.saved.Version, true
}

// Report tells the worker how far the job is. It stores a pointer and returns:
// call it as often as there is something to tell. The worker decides when a
// report is worth a write; after a notice the last one is always written.
// Report is for the goroutine that runs the handler, or one at a time.
func (j *Job) Report(p Progress) {
	if p.State == nil {
		if last := j.Latest(); last != nil {
			p.State, p.Version = last.State, last.Version
		}
	}
	j.latest.Store(&p)
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
