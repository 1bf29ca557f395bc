package job_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spotworker/spotworker/job"
)

// A handler that continues from its last report. Stopped after the third step, it does
// only the rest when it is called again.
func ExampleJob_Report() {
	sum := func(ctx context.Context, j *job.Job) ([]byte, error) {
		if err := j.CheckVersion(1); err != nil {
			return nil, err
		}
		var state struct{ Next, Sum int }
		if saved, _, ok := j.Saved(); ok {
			if err := json.Unmarshal(saved, &state); err != nil {
				return nil, job.Permanent(err)
			}
		}
		for state.Next < 5 {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx) // the last report is saved
			}
			fmt.Println("step", state.Next)
			state.Sum += state.Next
			state.Next++
			saved, err := json.Marshal(state)
			if err != nil {
				return nil, err
			}
			j.Report(job.Progress{State: saved, Version: 1, Fraction: float64(state.Next) / 5})
			if state.Next == 3 && j.Attempt == 1 {
				return nil, errors.New("out of luck")
			}
		}
		return []byte(strconv.Itoa(state.Sum)), nil
	}

	first := job.New(job.Spec{ID: "sum-1", Attempt: 1}, nil)
	_, err := sum(context.Background(), first)
	fmt.Printf("%v, at %.0f %%\n", err, job.ControlOf(first).Latest().Fraction*100)

	second := job.New(job.Spec{ID: "sum-1", Attempt: 2}, job.ControlOf(first).Latest())
	result, err := sum(context.Background(), second)
	fmt.Printf("%s, %v\n", result, err)
	// Output:
	// step 0
	// step 1
	// step 2
	// out of luck, at 60 %
	// step 3
	// step 4
	// 10, <nil>
}

// A state that is too large for memory is a file that is no longer written. A
// cleanup removes it at the end of the run.
func ExampleJob_OpenSaved() {
	work, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(work) }()

	// grow adds a line to the recorded state.
	grow := func(j *job.Job) error {
		name := filepath.Join(work, "state-"+strconv.Itoa(j.Attempt))
		j.Cleanup(func() { _ = os.Remove(name) })
		file, err := os.Create(name)
		if err != nil {
			return err
		}
		saved, _, err := j.OpenSaved()
		if err != nil {
			return err
		}
		if saved != nil {
			_, err = io.Copy(file, saved)
			_ = saved.Close()
		}
		_, writeErr := fmt.Fprintln(file, "run", j.Attempt)
		if err := errors.Join(err, writeErr, file.Close()); err != nil {
			return err // the state is damaged, or another worker has the job
		}
		j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return os.Open(name) }})
		return nil
	}

	var saved *job.Progress
	for attempt := 1; attempt <= 3; attempt++ {
		j := job.New(job.Spec{ID: "log-1", Attempt: attempt}, saved)
		if err := grow(j); err != nil {
			fmt.Println(err)
			return
		}
		saved = record(job.ControlOf(j).Latest()) // as the worker does, in storage
		job.ControlOf(j).Close()
	}
	state, _, err := job.New(job.Spec{ID: "log-1"}, saved).OpenSaved()
	if err != nil {
		fmt.Println(err)
		return
	}
	for lines := bufio.NewScanner(state); lines.Scan(); {
		fmt.Println(lines.Text())
	}
	// Output:
	// run 1
	// run 2
	// run 3
}

// record simulates the storage in which a worker saves states.
func record(p *job.Progress) *job.Progress {
	stream, err := p.Stream()
	if err != nil {
		return nil
	}
	defer func() { _ = stream.Close() }()
	var kept bytes.Buffer
	if _, err := kept.ReadFrom(stream); err != nil {
		return nil
	}
	return &job.Progress{Stream: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(kept.Bytes())), nil }}
}

// An error that no retry can fix dead-letters the job at once, with the error's text as
// the reason.
func ExamplePermanent() {
	parse := func(_ context.Context, j *job.Job) ([]byte, error) {
		var input struct{ Blob string }
		if err := json.Unmarshal(j.Payload, &input); err != nil {
			return nil, job.Permanent(fmt.Errorf("payload is not what this kind takes: %w", err))
		}
		return nil, errors.New("storage is busy") // retried with backoff
	}
	for _, payload := range []string{`{"blob": "a"}`, `{"blob": 7}`} {
		_, err := parse(context.Background(), job.New(job.Spec{Payload: []byte(payload)}, nil))
		fmt.Println(job.IsPermanent(err), err)
	}
	// Output:
	// false storage is busy
	// true payload is not what this kind takes: json: cannot unmarshal number into Go struct field .Blob of type string
}

// A handler may run more than once. A service with idempotency keys has the effect only
// once.
func ExampleJob_Key() {
	charged := map[string]int{}
	charge := func(key string, cents int) {
		if _, again := charged[key]; !again {
			charged[key] = cents
		}
	}
	for attempt := 1; attempt <= 3; attempt++ {
		j := job.New(job.Spec{ID: "order-7", Attempt: attempt}, nil)
		charge(j.Key("deposit"), 500)
		charge(j.Key("rest"), 4500)
	}
	total := 0
	for _, cents := range charged {
		total += cents
	}
	fmt.Println(len(charged), "charges,", total, "cents")
	// Output: 2 charges, 5000 cents
}

// A handler reads why it was stopped, and by when it must return.
func ExampleStopOf() {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(&job.Stop{Reason: job.Evicted, Err: errors.New("this VM is being taken away")})
	if stop := job.StopOf(ctx); stop != nil {
		fmt.Println(stop.Reason, "-", stop)
	}
	// Output: evicted - stopped: evicted: this VM is being taken away
}

// A kind whose jobs may run for six hours in all, must report every ten minutes, and run
// one at a time on a worker, for instance because each needs all its memory.
func ExampleWithLimits() {
	render := job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
		<-ctx.Done() // hangs without a report
		return nil, context.Cause(ctx)
	})
	kinds := job.Kinds{"render": job.WithLimits(render, job.Limits{
		MaxRun: 6 * time.Hour, MaxSilence: 10 * time.Minute, Concurrency: 1,
	})}
	l := job.LimitsOf(kinds["render"])
	fmt.Println(l.MaxRun, l.MaxSilence, l.Concurrency)
	// Output: 6h0m0s 10m0s 1
}
