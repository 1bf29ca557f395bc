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

// Case is a job, and how hard it is tried. The zero value is a job without a
// payload whose handler changes nothing outside.
type Case struct {
	// ID, Kind, Payload and Deadline are the job's. ID and Kind default to
	// "jobtest".
	ID, Kind string
	Payload  []byte
	Deadline time.Time

	// Reset puts everything outside the handler back to where it was before the
	// job. It is called before the job is done anew, not when it is resumed.
	Reset func()

	// Check looks at everything outside the handler once the job has its result,
	// and says what is wrong there.
	Check func(result []byte) error

	// Effects, if given, are compared with those of an uninterrupted job, and
	// emptied before the job is done anew.
	Effects *Effects

	// Same reports whether a result means the same as that of an uninterrupted
	// run. Default: [bytes.Equal].
	Same func(want, got []byte) bool

	// Grace is how long the handler may take to return once its context is
	// cancelled. Default 5 s, which is what a worker gives it.
	Grace time.Duration

	// LateReports is how many states the handler may still report once its
	// context is cancelled. Default 1: it may finish the step that it is in. A
	// negative number is none.
	LateReports int

	// Runs is how often the handler is called at most, in all, not counting the
	// breaks that it takes itself. Default 300, at least 20.
	Runs int

	// Seed chooses the moments where there are more than Runs allows.
	Seed uint64

	// SameProcess keeps jobtest from starting the test's binary once more, to resume
	// the job in a process that has done nothing else. That is done only for a job
	// without Reset, Check and effects, which changes nothing outside.
	SameProcess bool

	alone     bool // nothing outside is declared
	elsewhere func(context.Context, request) (reply, error)
}

// Run fails the test, with the story of what happened, unless the job comes to
// the same end however it is interrupted; see the package's documentation.
// newHandler makes the handler as a worker that has just been started does. It
// is called for every run, since what a worker had in memory is gone with it.
func Run(t testing.TB, newHandler func() job.Handler, c Case) {
	t.Helper()
	if file := os.Getenv(requestEnv); file != "" {
		switch served, err := serve(t.Context(), t.Name(), file, newHandler, c); {
		case err != nil:
			t.Fatal(err)
		case served:
			t.SkipNow() // what follows is for the process that asked
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
