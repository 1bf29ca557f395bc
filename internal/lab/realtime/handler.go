package realtime

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab/labworker"
	"github.com/spotworker/spotworker/internal/replay"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

// WorkerCommand is the first argument that makes the lab a worker, see [WorkerMain].
const WorkerCommand = "replay-worker"

// kind is the kind of jobs without a program of the user.
const kind = "wait"

// WorkerMain runs the worker of a replay, the real program with one more kind, if the command line
// asks for it. Otherwise it returns.
func WorkerMain() {
	if len(os.Args) < 2 || os.Args[1] != WorkerCommand {
		return
	}
	labworker.Main(job.Kinds{kind: job.HandlerFunc(wait)}, os.Args[2:])
}

const (
	// callTime is the time of a storage call, as in virtual time.
	callTime = 20 * time.Millisecond

	// step is the time between two reports of a job that has a state at any moment.
	step = 50 * time.Millisecond
)

// work is the payload of a job.
type work struct {
	replay.Work
	Never bool `json:"never"` // it reports no state
}

// hold is how long a state takes before it is sent. A job that stands still does so for the whole time
// of a save, and the call of storage comes after it.
func hold(w replay.Work) time.Duration {
	if w.Beside {
		return max(0, w.Save.Duration-callTime)
	}
	return w.Save.Duration
}

// wait works for the time of its payload: it waits, and reports how long it has worked.
func wait(ctx context.Context, j *job.Job) ([]byte, error) {
	var w work
	if err := json.Unmarshal(j.Payload, &w); err != nil {
		return nil, job.Permanent(err)
	}
	before, err := w.resume(ctx, j)
	if err != nil {
		return nil, err
	}
	clock := &stopwatch{started: time.Now()}
	done, reported := before, before
	for done < w.Length.Duration {
		stopped := retry.Sleep(ctx, min(step, w.Length.Duration-done))
		done = before + clock.worked()
		state := done
		if w.States.Duration > 0 {
			state = min(done, w.Length.Duration).Truncate(w.States.Duration)
		}
		if !w.Never && state > reported && (stopped == nil || !w.NoLast) {
			reported = state
			w.report(j, clock, state)
		}
		if stopped != nil {
			time.Sleep(w.Stop.Duration) // the scenario's program stops so slowly
			return nil, context.Cause(ctx)
		}
	}
	return nil, nil
}

// resume returns the work that is recorded. A job with some takes its time to start.
func (w work) resume(ctx context.Context, j *job.Job) (done time.Duration, err error) {
	state, _, err := j.OpenSaved()
	if err != nil || state == nil {
		return 0, err
	}
	defer state.Close()
	text, err := io.ReadAll(state)
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(text, &done); err != nil {
		return 0, job.Permanent(err)
	}
	if retry.Sleep(ctx, w.Restore.Duration) != nil {
		return 0, context.Cause(ctx)
	}
	return done, nil
}

// report reports a state. If a save takes time, the state is a stream that takes as long, while the job
// stands still unless the scenario lets it work.
func (w work) report(j *job.Job, clock *stopwatch, done time.Duration) {
	text, _ := json.Marshal(done) // a number
	progress := job.Progress{State: text, Fraction: min(1, float64(done)/float64(w.Length.Duration))}
	if held := hold(w.Work); held > 0 {
		var saved sync.Once // a save may open the stream more than once
		progress.State, progress.Stream = nil, func() (io.ReadCloser, error) {
			saved.Do(func() {
				if !w.Beside {
					clock.stop()
					defer clock.resume()
				}
				time.Sleep(held)
			})
			return io.NopCloser(bytes.NewReader(text)), nil
		}
	}
	j.Report(progress)
}

// stopwatch measures work. It can be stopped several times at once.
type stopwatch struct {
	mu      sync.Mutex
	started time.Time
	stops   int           // that are active
	since   time.Time     // of the first of them
	stood   time.Duration // in earlier stops
}

func (s *stopwatch) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stops++; s.stops == 1 {
		s.since = time.Now()
	}
}

func (s *stopwatch) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stops--; s.stops == 0 {
		s.stood += time.Since(s.since)
	}
}

// worked returns the time since the start without the stops.
func (s *stopwatch) worked() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	worked := time.Since(s.started) - s.stood
	if s.stops > 0 {
		worked -= time.Since(s.since)
	}
	return worked
}
