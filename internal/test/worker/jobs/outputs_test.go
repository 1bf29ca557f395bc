package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// writes sends n outputs and returns.
func writes(n int) job.Handler {
	return job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		for i := range n {
			if err := j.SendOutput(ctx, fmt.Sprintf("out/%d.txt", i), strings.NewReader(fmt.Sprintf("file %d", i))); err != nil {
				return nil, err
			}
		}
		return []byte("ok"), nil
	})
}

// TestCallsForOutputs: a short job with n small outputs costs a call for each and one for
// their list, beside the calls of every job; a job without outputs costs none more.
func TestCallsForOutputs(t *testing.T) {
	for _, n := range []int{0, 1, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.Put("a", "writes", "1")
				var mu sync.Mutex
				calls := map[string]int{}
				b.Server.OnResult(func(r storage.Result) {
					if r.Service == storage.BlobService && (r.Container == b.Names.Records || r.Container == b.Names.Outputs) {
						mu.Lock()
						defer mu.Unlock()
						calls[r.Container+" "+r.Operation]++
					}
				})
				p := b.Start("vm_0", job.Kinds{"writes": job.WithOutputs(writes(n), job.OutputLimits{})})
				b.WaitFor("the job is done", 2*time.Minute, func() bool { return b.Record("a").Status == checkpoint.Done })
				p.Stop()
				files := 0
				if n > 0 {
					files = n + 1
				}
				want := map[string]int{b.Names.Records + " " + storage.OpPutBlob: 1, b.Names.Outputs + " " + storage.OpPutBlob: files}
				mu.Lock()
				defer mu.Unlock()
				for key, got := range calls {
					if strings.Contains(key, storage.OpGetContainerProperties) || strings.Contains(key, storage.OpGetBlobProperties) {
						continue // of the warm-up, and of this test
					}
					if got != want[key] {
						t.Errorf("calls %s = %d, want %d", key, got, want[key])
					}
				}
				b.Server.OnResult(nil)
				if got := len(b.FilesOf("a")); got != n || b.Record("a").Outputs.Files != n {
					t.Errorf("outputs = %d, of the record %d, want %d", got, b.Record("a").Outputs.Files, n)
				}
			})
		})
	}
}

// TestOutputsSurviveEviction: the next worker sends none of the files that the one before
// has sent, and the job's outputs are complete.
func TestOutputsSurviveEviction(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Put("a", "stores", "1")
		var mu sync.Mutex
		sent := map[string]int{}
		b.Server.OnResult(func(r storage.Result) {
			if r.Container == b.Names.Outputs && r.Operation == storage.OpPutBlob && !strings.Contains(r.Blob, "/manifest-") {
				mu.Lock()
				defer mu.Unlock()
				sent[path.Base(r.Blob)]++
			}
		})
		kinds := job.Kinds{"stores": &rig.Storing{Steps: &rig.Steps{N: rig.StoredSteps, Each: 500 * time.Millisecond}}}
		p := b.Start("vm_0", kinds)
		time.Sleep(7 * time.Second)
		if _, err := b.Metadata.SimulateEviction("vm_0"); err != nil {
			t.Fatal(err)
		}
		b.WaitFor("the job is released", 2*time.Minute, func() bool { return b.Record("a").Status == checkpoint.Open })
		if r := b.Record("a"); r.Outputs.Files < 10 {
			t.Errorf("outputs in the record of a released job = %d, want at least 10", r.Outputs.Files)
		}
		p.Kill()
		q := b.Start("vm_1", kinds)
		b.WaitFor("the job is done", 2*time.Minute, func() bool { return b.Record("a").Status == checkpoint.Done })
		q.Stop()
		b.CheckOutputs(t, b.Record("a"), rig.StepOutputs("a"))
		mu.Lock()
		defer mu.Unlock()
		for name, n := range sent {
			if n != 1 {
				t.Errorf("output %s was sent %d times, want once", name, n)
			}
		}
	})
}

// TestNoRightsOnOutputs: where the worker's identity may not write the container of outputs,
// a job waits for the role, like all other jobs of the kind, and nothing counts against it.
// The log names the role; once it is there, the job ends well.
func TestNoRightsOnOutputs(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var granted atomic.Bool
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Container == b.Names.Outputs && c.Operation == storage.OpPutBlob && !granted.Load() {
				return storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"}}
			}
			return storage.Fault{}
		})
		b.Put("a", "writes", "1")
		p := b.Start("vm_0", job.Kinds{"writes": job.WithOutputs(writes(2), job.OutputLimits{})})
		time.Sleep(10 * time.Minute)
		if r := b.Record("a"); r.Status.Final() || r.FailuresTotal != 0 {
			t.Errorf("record = %s after %d failures, want the job to wait", r.Status, r.FailuresTotal)
		}
		denied := p.Log.Find("storage denies access; running jobs continue, what is denied waits")
		if len(denied) == 0 || denied[0]["missing_role"] != "Storage Blob Data Contributor" ||
			!strings.Contains(fmt.Sprint(denied[0]["resource"]), "PutBlob") {
			t.Errorf("the log says %v, want the role that is missing, and for what", denied)
		}
		granted.Store(true)
		b.WaitDone("a", 10*time.Minute)
		p.Stop()
		if got := len(b.FilesOf("a")); got != 2 || b.Record("a").FailuresTotal != 0 {
			t.Errorf("outputs = %d after %d failures, want 2 and none", got, b.Record("a").FailuresTotal)
		}
	})
}

// TestStateIsHeldWhileOutputsAreSent: a state is saved also where later reports take its
// place while the outputs that it relies on are sent, as a program's checkpoints do.
func TestStateIsHeldWhileOutputsAreSent(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Put("a", "reports", "1")
		var newest, opened, closed atomic.Int64
		reports := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.BeforeSave(func(context.Context) error { time.Sleep(2 * time.Second); return nil })
			time.Sleep(100 * time.Millisecond) // so that no report comes at the moment at which the worker takes the one before
			for n := int64(1); ctx.Err() == nil; n++ {
				newest.Store(n)
				j.Report(job.Progress{Version: 1, Fraction: 0.5, Stream: func() (io.ReadCloser, error) {
					if newest.Load() != n {
						return nil, errors.New("a later one has taken its place")
					}
					opened.Add(1)
					return closing{strings.NewReader(strings.Repeat("x", 100_000)), &closed}, nil
				}})
				time.Sleep(250 * time.Millisecond)
			}
			return nil, context.Cause(ctx)
		})
		p := b.Start("vm_0", job.Kinds{"reports": job.WithOutputs(reports, job.OutputLimits{})})
		b.WaitFor("a state is recorded", time.Minute, func() bool { return b.Record("a").StateSize == 100_000 })
		if lines := p.Log.Find("checkpoint not saved; the one before stands"); len(lines) > 0 {
			t.Errorf("%d saves failed, want none: %v", len(lines), lines)
		}
		p.Stop()
		if opened.Load() == 0 || opened.Load() != closed.Load() {
			t.Errorf("%d streams were opened and %d closed, want all", opened.Load(), closed.Load())
		}
	})
}

// closing counts the readers that are closed.
type closing struct {
	io.Reader
	closed *atomic.Int64
}

func (c closing) Close() error {
	c.closed.Add(1)
	return nil
}
