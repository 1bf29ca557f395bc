package delivery_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// putTwoStates enqueues a job whose record has the states "first" and "second", and failures in a row.
func (b *bench) putTwoStates(id string, failures int) { b.putStates(id, failures, "first", "second") }

// putStates enqueues a job with some states, the last two in its record, and failures in a row.
func (b *bench) putStates(id string, failures int, states ...string) {
	b.T.Helper()
	e := queue.Envelope{ID: id, Kind: "k", Resume: true}
	d := former(e)
	c := b.Records.Fresh(d, "vm_9-boot-1")
	for _, state := range states {
		if err := errors.Join(c.KeepPrevious(b.T.Context()), c.Save(b.T.Context(), checkpoint.Snapshot{State: []byte(state)})); err != nil {
			b.T.Fatal(err)
		}
	}
	if err := c.Release(b.T.Context(), checkpoint.Snapshot{}); err != nil {
		b.T.Fatal(err)
	}
	for range failures {
		c, err := b.Records.Acquire(b.T.Context(), d, b.Record(id), "vm_9-boot-1")
		if err == nil {
			err = c.Fail(b.T.Context(), checkpoint.Snapshot{}, "out of luck")
		}
		if err != nil {
			b.T.Fatal(err)
		}
	}
	if r := b.Record(id); r.HasPrevious() != (len(states) > 1) || r.Failures != failures {
		b.T.Fatalf("record with a state before the last: %t, %d failures; want one of %d after %d", r.HasPrevious(), r.Failures, len(states),
			failures)
	}
	b.put(e)
}

// TestStartsOfAJobWithTwoStates: a job begins with its last state, and with the one before if the last is damaged or this is
// its last attempt, but steps back once. If the state before cannot be read, the last attempt begins with the last one.
func TestStartsOfAJobWithTwoStates(t *testing.T) {
	const warning = "state before the last not restored; the job resumes from the last one"
	for name, row := range map[string]struct {
		failures, limit  int
		damaged, refused bool
		state            string
		steps, warnings  int
	}{
		"as usual":                       {0, 3, false, false, "second", 0, 0},
		"the only attempt":               {0, 1, false, false, "second", 0, 0},
		"damaged":                        {0, 3, true, false, "first", 1, 0},
		"before the last attempt":        {1, 3, false, false, "second", 0, 0},
		"the last attempt":               {2, 3, false, false, "first", 1, 0},
		"the last of two":                {1, 2, false, false, "first", 1, 0},
		"the last attempt, one state":    {2, 3, false, false, "only", 0, 0},
		"the last attempt, damaged":      {2, 3, true, false, "first", 1, 0},
		"the last attempt, none to read": {2, 3, false, true, "second", 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			found := ""
			run := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
				state, _, _ := j.Saved()
				found = string(state)
				return nil, nil
			})
			kinds := job.Kinds{"k": job.KeepPreviousState(job.WithLimits(run, job.Limits{MaxFailures: row.limit}))}
			onBench(t, kinds, func(t *testing.T, b *bench) {
				if row.state == "only" {
					b.putStates("a", row.failures, row.state)
				} else {
					b.putTwoStates("a", row.failures)
				}
				if row.damaged {
					b.damage("a")
				}
				reads := 0
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					if !row.refused || !on(b.Names.Records, storage.OpGetBlob)(c) {
						return storage.Fault{}
					}
					if reads++; reads == 1 {
						return storage.Fault{} // the last state
					}
					return storage.Fault{Refuse: &storage.Error{Status: 400, Code: "InvalidHeaderValue"}}
				})
				b.runOne()
				steps, warnings := b.counter.WithPrefix("stepped back"), b.lines(warning)
				if found != row.state || steps != row.steps || warnings != row.warnings || b.Record("a").Status != checkpoint.Done {
					t.Errorf("began with %q after %d steps back and %d warnings, record %s %q; want %q, %d, %d, done", found, steps, warnings,
						b.Record("a").Status, b.Record("a").Reason, row.state, row.steps, row.warnings)
				}
			})
		})
	}
}

// TestStopInAStepBack: a worker that stops while it looks for the state before a damaged one counts no failure.
func TestStopInAStepBack(t *testing.T) {
	kinds := job.Kinds{"k": job.KeepPreviousState(rig.Echo)}
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.putTwoStates("a", 0)
		b.damage("a")
		read := 0
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if !on(b.Names.Records, storage.OpGetBlob)(c) {
				return storage.Fault{}
			}
			if read++; read == 1 {
				return storage.Fault{}
			}
			return storage.Fault{Refuse: &storage.Error{Status: 503, Code: "ServerBusy", Message: "busy"}}
		})
		wait := b.begin(b.claim())
		time.Sleep(30 * time.Second)
		b.drainNow(10 * time.Second)
		wait()
		b.Server.OnCall(nil)
		if r := b.Record("a"); r.Status != checkpoint.Open || r.FailuresTotal != 0 || b.visible() != 1 || read < 2 {
			t.Errorf("record = %s after %d failures, %d visible messages, %d reads; want it open without, and one", r.Status, r.FailuresTotal,
				b.visible(), read)
		}
	})
}

// TestStepBackWithoutOutputs: a handler steps back also if its worker has no container for outputs, or its states named none.
func TestStepBackWithoutOutputs(t *testing.T) {
	for name, without := range map[string]bool{"no container": true, "no outputs": false} {
		t.Run(name, func(t *testing.T) {
			found := ""
			run := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
				if ok, err := j.StepBack(); err != nil || !ok {
					return nil, job.Permanent(errors.Join(errors.New("no step back"), err))
				}
				state, _, _ := j.Saved()
				found = string(state)
				return nil, sleeps(ctx, time.Minute)
			})
			set := func(b *bench) {
				if without {
					b.config.Stores.Outputs = nil
				}
			}
			onBench(t, job.Kinds{"k": job.KeepPreviousState(run)}, func(t *testing.T, b *bench) {
				b.putTwoStates("a", 0)
				if b.runOne(); found != "first" || b.Record("a").Status != checkpoint.Done {
					t.Errorf("continued with %q, record %s %q; want the first state, done", found, b.Record("a").Status, b.Record("a").Reason)
				}
			}, set)
		})
	}
}

// TestOutputsWithoutAState: a job that keeps two states, and has one, records its outputs with the next one alone, others
// without a state too.
func TestOutputsWithoutAState(t *testing.T) {
	for name, keeps := range map[string]bool{"one state": false, "two states": true} {
		t.Run(name, func(t *testing.T) {
			var during checkpoint.Record
			var record func() checkpoint.Record
			var run job.Handler = job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
				if err := j.SendOutput(ctx, "x", strings.NewReader("x")); err != nil {
					return nil, err
				}
				if err := sleeps(ctx, 10*time.Minute); err != nil {
					return nil, err
				}
				during = record()
				j.Report(job.Progress{State: []byte("s")})
				return nil, job.Interrupted(errors.New("wait"))
			})
			if keeps {
				run = job.KeepPreviousState(run)
			}
			onBench(t, job.Kinds{"k": run}, func(t *testing.T, b *bench) {
				record = func() checkpoint.Record { return b.Record("a") }
				b.putOpen("a", "k", checkpoint.Snapshot{State: []byte("before")})
				b.runOne()
				if files := b.Record("a").Outputs.Files; (during.Outputs.Files == 1) == keeps || files != 1 {
					t.Errorf("%d outputs before the next state, %d with it; want one before: %t, and one", during.Outputs.Files, files, !keeps)
				}
				want := 2
				if keeps {
					want = 1 // with the state
				}
				if n := b.counter.Of("saved saved")["saved saved"]; n != want {
					t.Errorf("%d saves, want %d", n, want)
				}
			})
		})
	}
}
