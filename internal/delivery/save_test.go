package delivery

import (
	"io"
	"math"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/delivery/running"
	"github.com/spotworker/spotworker/job"
)

// stream returns a streamed state.
func stream() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("stream")), nil }

// TestProgressed: a new state or a larger fraction is progress, and a report that repeats the beginning is not.
func TestProgressed(t *testing.T) {
	state := func(text string, fraction float64) *job.Progress {
		return &job.Progress{State: []byte(text), Fraction: fraction}
	}
	for name, row := range map[string]struct {
		restored, reported *job.Progress
		want               bool
	}{
		"no report":                    {nil, nil, false},
		"no report after a state":      {state("s", 0.5), nil, false},
		"a text alone":                 {nil, &job.Progress{Text: "t"}, false},
		"a state":                      {nil, state("s", 0), true},
		"the same state":               {state("s", 0.5), state("s", 0.5), false},
		"another state":                {state("s", 0.5), state("t", 0.5), true},
		"another state, less fraction": {state("s", 0.5), state("t", 0.25), true},
		"the same state, more":         {state("s", 0.5), state("s", 0.75), true},
		"no state, more":               {state("s", 0.5), &job.Progress{Fraction: 0.75}, true},
		"no state, less":               {state("s", 0.5), &job.Progress{Fraction: 0.25}, false},
	} {
		j := &job.Job{}
		l := loaded{job: job.ControlOf(j), restored: row.restored, startFraction: fractionOf(row.restored, 0)}
		if row.reported != nil {
			j.Report(*row.reported)
		}
		if got := l.progressed(); got != row.want {
			t.Errorf("%s: progressed = %t, want %t", name, got, row.want)
		}
	}
}

// TestUnsavedSize: the size of the last writes orders them, and streams come last.
func TestUnsavedSize(t *testing.T) {
	var jobs running.Set
	for name, row := range map[string]struct {
		saved, reported *job.Progress
		want            int
	}{
		"no report":      {nil, nil, 0},
		"no state":       {nil, &job.Progress{Fraction: 0.5}, 0},
		"a state":        {nil, &job.Progress{State: []byte("state")}, 5},
		"a state, saved": {&job.Progress{State: []byte("state")}, &job.Progress{State: []byte("state")}, 0},
		"a newer state":  {&job.Progress{State: []byte("s")}, &job.Progress{State: []byte("state")}, 5},
		"a stream":       {nil, &job.Progress{Stream: stream}, math.MaxInt},
	} {
		j := &job.Job{}
		l := loaded{job: job.ControlOf(j), saved: row.saved, watch: jobs.Start(nil)}
		if row.reported != nil {
			j.Report(*row.reported)
		}
		l.watch.Stop()
		if got := l.unsavedSize(); got != row.want {
			t.Errorf("%s: unsaved size = %d, want %d", name, got, row.want)
		}
	}
}
