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
			kinds := job.Kinds{"k": job.WithLimits(run, job.Limits{MaxFailures: 2, Backoff: time.Second, MaxBackoff: time.Second})}
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

// TestFailuresElsewhere: failures of jobs that another worker has by then do not open the circuit breaker, as the save of their streamed
// state shows first.
func TestFailuresElsewhere(t *testing.T) {
	for name, lost := range map[string]bool{"theirs": true, "ours": false} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				err := sleeps(ctx, 14*time.Second)
				j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return nil, errors.New("bad disk") }})
				if lost {
					j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("s")), nil }})
				}
				return nil, errors.Join(err, errors.New("out of luck"))
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				defer b.keepAlive(b.other())()
				for i := range 5 {
					id := fmt.Sprint("job-", i)
					b.Put(id, "k", "")
					wait := b.begin(b.claim())
					time.Sleep(12 * time.Second) // its record is there after 10 s
					if lost {
						b.loseWorker(id)
					}
					wait()
					b.clear() // so that the next claim finds the next job
				}
				want, failed, broke := "ended failed", 5, 1
				if lost {
					want, failed, broke = "ended dropped", 0, 0
				}
				if b.counter.Of(want)[want] != 5 || b.counter.WithPrefix("failed") != failed || b.counter.WithPrefix("broke") != broke {
					t.Errorf("%s %d times, %d failures, the circuit breaker opened %d times; want 5, %d, %d", want, b.counter.Of(want)[want],
						b.counter.WithPrefix("failed"), b.counter.WithPrefix("broke"), failed, broke)
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
