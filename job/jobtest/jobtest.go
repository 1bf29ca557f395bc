package jobtest

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/spotworker/spotworker/job"
)

// Defaults of a [Case].
const (
	defaultID          = "jobtest"
	defaultGrace       = 5 * time.Second // half of the worker's drain budget
	defaultLateReports = 1
	defaultRuns        = 300
	leastRuns          = 20
)

// Case is a job and the settings of its test. The zero value is a job without a payload
// whose handler changes nothing outside.
type Case struct {
	// ID, Kind, Payload and Deadline are the job's. ID and Kind default to
	// "jobtest".
	ID, Kind string
	Payload  []byte
	Deadline time.Time

	// Reset restores everything outside the handler to its state before the job. It is
	// called before the job starts again from the beginning, not when it is resumed.
	Reset func()

	// Check verifies everything outside the handler once the job has its result, and
	// returns an error that describes the fault.
	Check func(result []byte) error

	// Effects, if not nil, are compared with the effects of an uninterrupted job, and
	// cleared before the job starts again from the beginning.
	Effects *Effects

	// Same reports whether a result is equivalent to the result of an uninterrupted
	// run. Default: [bytes.Equal].
	Same func(want, got []byte) bool

	// Grace is how long the handler may take to return after its context is cancelled.
	// Default 5 s, as in a worker.
	Grace time.Duration

	// LateReports is how many states the handler may report after its context is
	// cancelled. Default 1: it may finish the current step. A negative number means 0.
	LateReports int

	// Runs is the largest number of calls of the handler in all, not counting calls
	// after its own breaks. Default 300, at least 20.
	Runs int

	// Seed selects the points of interruption where there are more than Runs allows.
	Seed uint64

	// SameProcess disables the test in a new process. That test applies only to a job
	// without Reset, Check and effects, which changes nothing outside.
	SameProcess bool

	alone     bool // without Reset and Check
	elsewhere func(context.Context, request) (reply, error)
}

// Run fails the test unless the job has the same result however it is interrupted; see
// the package documentation. newHandler returns a new handler, as in a worker that has
// just started. It is called for every run, since an interrupted worker loses its memory.
func Run(t testing.TB, newHandler func() job.Handler, c Case) {
	t.Helper()
	if file := os.Getenv(requestEnv); file != "" {
		switch served, err := serve(t.Context(), t.Name(), file, newHandler, c); {
		case err != nil:
			t.Fatal(err)
		case served:
			t.SkipNow() // the rest of the test is for the process that sent the request
		}
		return
	}
	c.elsewhere = func(ctx context.Context, q request) (reply, error) { return ask(ctx, t.Name(), q) }
	summary, err := prove(t.Context(), newHandler, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(summary)
}

func (c *Case) setDefaults() {
	if c.ID == "" {
		c.ID = defaultID
	}
	if c.Kind == "" {
		c.Kind = defaultID
	}
	c.alone = c.Reset == nil && c.Check == nil
	if c.Reset == nil {
		c.Reset = func() {}
	}
	if c.Check == nil {
		c.Check = func([]byte) error { return nil }
	}
	if c.Effects == nil {
		c.Effects = &Effects{}
	}
	if c.Same == nil {
		c.Same = bytes.Equal
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.LateReports == 0 {
		c.LateReports = defaultLateReports
	}
	c.LateReports = max(c.LateReports, 0)
	if c.Runs == 0 {
		c.Runs = defaultRuns
	}
	c.Runs = max(c.Runs, leastRuns)
}
