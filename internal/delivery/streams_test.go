package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/job"
)

// TestFailuresWithStreams: a streamed state is sent before a failure is counted, since only then the worker knows whether it
// is progress: the same stream again is none, and the job is poison after its failures in a row.
func TestFailuresWithStreams(t *testing.T) {
	for name, row := range map[string]struct {
		grows  bool
		status checkpoint.Status
		runs   int
	}{"the same stream": {false, checkpoint.Poison, 2}, "a new one each time": {true, checkpoint.Open, 8}} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			run := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
				runs++
				text := "state"
				if row.grows {
					text = fmt.Sprint("state ", runs)
				}
				j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }})
				return nil, errors.New("out of luck")
			})
			kinds := job.Kinds{"k": job.WithLimits(run, job.Limits{MaxFailures: 2, Backoff: time.Second})}
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				for b.MessagesLeft() > 0 && runs < 8 {
					b.runOne()
					time.Sleep(2 * time.Second)
				}
				if r := b.Record("a"); r.Status != row.status || runs != row.runs || r.FailuresTotal != runs || !r.HasState() {
					t.Errorf("record = %s %q after %d runs and %d failures, state %t; want %s after %d, with its state", r.Status, r.Reason, runs,
						r.FailuresTotal, r.HasState(), row.status, row.runs)
				}
			})
		})
	}
}

// TestStreamsAreClosed: each opened state is closed, also where a save ends before it reads the state.
func TestStreamsAreClosed(t *testing.T) {
	var opened, closed, hooks int
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		j.BeforeSave(func(context.Context) error {
			if hooks++; hooks == 1 {
				return errors.New("the file is not complete yet")
			}
			return nil
		})
		j.Report(job.Progress{Stream: func() (io.ReadCloser, error) {
			opened++
			return closing{strings.NewReader("state"), func() { closed++ }}, nil
		}})
		return nil, sleeps(ctx, 3*time.Minute)
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		b.runOne()
		if hooks < 2 || opened < 2 || closed != opened || b.Record("a").Status != checkpoint.Done {
			t.Errorf("%d hooks, %d states opened and %d closed, record %s; want the first save to fail, and all closed", hooks, opened, closed,
				b.Record("a").Status)
		}
	})
}

// closing is a reader that tells when it is closed.
type closing struct {
	io.Reader

	closed func()
}

func (c closing) Close() error {
	c.closed()
	return nil
}
