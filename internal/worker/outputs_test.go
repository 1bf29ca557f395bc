package worker

import (
	"context"
	"encoding/binary"
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
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/outputs"
	"github.com/spotworker/spotworker/job"
)

// filesOf returns the outputs of a job as a reader of its record finds them, by path, and
// fails unless each is what its list says.
func (b *testbed) filesOf(id string) map[string]string {
	b.t.Helper()
	r := b.record(id)
	files, err := b.storesFor(id).outputs.Files(b.t.Context(), id, outputs.Ref(r.Outputs))
	if err != nil {
		b.t.Errorf("outputs of %s: %v", id, err)
	}
	contents := map[string]string{}
	for _, f := range files {
		body, err := b.storesFor(id).outputs.OpenChecked(b.t.Context(), id, f)
		if err != nil {
			b.t.Error(err)
			continue
		}
		data, err := io.ReadAll(body)
		_ = body.Close()
		if err != nil {
			b.t.Error(err)
		}
		contents[f.Path] = string(data)
	}
	return contents
}

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
// their list, beside those of every job; one without outputs costs none more.
func TestCallsForOutputs(t *testing.T) {
	for _, n := range []int{0, 1, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *testbed) {
				b.put("a", "writes", "1")
				var mu sync.Mutex
				calls := map[string]int{}
				b.server.OnResult(func(r storage.Result) {
					if r.Service == storage.BlobService && (r.Container == b.names.Records || r.Container == b.names.Outputs) {
						mu.Lock()
						defer mu.Unlock()
						calls[r.Container+" "+r.Operation]++
					}
				})
				p := b.start("vm_0", job.Kinds{"writes": job.WithOutputs(writes(n), job.OutputLimits{})})
				b.waitFor("the job is done", 2*time.Minute, func() bool { return b.record("a").Status == checkpoint.Done })
				p.stop()
				files := 0
				if n > 0 {
					files = n + 1
				}
				want := map[string]int{b.names.Records + " " + storage.OpPutBlob: 1, b.names.Outputs + " " + storage.OpPutBlob: files}
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
				b.server.OnResult(nil)
				if got := len(b.filesOf("a")); got != n || b.record("a").Outputs.Files != n {
					t.Errorf("outputs = %d, of the record %d, want %d", got, b.record("a").Outputs.Files, n)
				}
			})
		})
	}
}

// storing is steps that stores a file at each step before it reports.
type storing struct{ *steps }

func (s *storing) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	next := 0
	if state, _, ok := j.Saved(); ok {
		next = int(binary.BigEndian.Uint32(state))
	}
	var failed error
	stop, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	result, err := s.runFrom(stop, j, next, func(n int) job.Progress {
		if failed = j.SendOutput(ctx, stepFile(n-1), strings.NewReader(stepContent(j.ID, n-1))); failed != nil {
			cancel(failed)
			return job.Progress{}
		}
		return job.Progress{State: binary.BigEndian.AppendUint32(nil, uint32(n))}
	})
	if failed != nil {
		return nil, failed
	}
	return result, err
}

func stepFile(n int) string { return fmt.Sprintf("steps/%02d", n) }

func stepContent(id string, n int) string { return fmt.Sprintf("step %d of %s", n, id) }

// stepOutputs are the outputs of a job whose handler is storing.
func stepOutputs(id string) expectedOutputs {
	return expectedOutputs{steps: storedSteps, content: func(step int) string { return stepContent(id, step) }}
}

// storedSteps is the number of steps of a job that stores.
const storedSteps = 24

// TestOutputsSurviveEviction: the next worker sends none of the files that the one before
// has sent, and the job's outputs are complete.
func TestOutputsSurviveEviction(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.put("a", "stores", "1")
		var mu sync.Mutex
		sent := map[string]int{}
		b.server.OnResult(func(r storage.Result) {
			if r.Container == b.names.Outputs && r.Operation == storage.OpPutBlob && !strings.Contains(r.Blob, "/manifest-") {
				mu.Lock()
				defer mu.Unlock()
				sent[path.Base(r.Blob)]++
			}
		})
		kinds := job.Kinds{"stores": &storing{&steps{n: storedSteps, each: 500 * time.Millisecond}}}
		p := b.start("vm_0", kinds)
		time.Sleep(7 * time.Second)
		if _, err := b.metadata.SimulateEviction("vm_0"); err != nil {
			t.Fatal(err)
		}
		b.waitFor("the job is released", 2*time.Minute, func() bool { return b.record("a").Status == checkpoint.Open })
		if r := b.record("a"); r.Outputs.Files < 10 {
			t.Errorf("outputs in the record of a released job = %d, want at least 10", r.Outputs.Files)
		}
		p.kill()
		q := b.start("vm_1", kinds)
		b.waitFor("the job is done", 2*time.Minute, func() bool { return b.record("a").Status == checkpoint.Done })
		q.stop()
		b.checkOutputs(t, b.record("a"), stepOutputs("a"))
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
	inBubble(t, func(t *testing.T, b *testbed) {
		var granted atomic.Bool
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if c.Container == b.names.Outputs && c.Operation == storage.OpPutBlob && !granted.Load() {
				return storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"}}
			}
			return storage.Fault{}
		})
		b.put("a", "writes", "1")
		p := b.start("vm_0", job.Kinds{"writes": job.WithOutputs(writes(2), job.OutputLimits{})})
		time.Sleep(10 * time.Minute)
		if r := b.record("a"); r.Status.Final() || r.FailuresTotal != 0 {
			t.Errorf("record = %s after %d failures, want the job to wait", r.Status, r.FailuresTotal)
		}
		denied := p.log.find("storage denies access; running jobs continue, what is denied waits")
		if len(denied) == 0 || denied[0]["missing_role"] != "Storage Blob Data Contributor" || !strings.Contains(fmt.Sprint(denied[0]["resource"]), "PutBlob") {
			t.Errorf("the log says %v, want the role that is missing, and for what", denied)
		}
		granted.Store(true)
		b.waitDone("a", 10*time.Minute)
		p.stop()
		if got := len(b.filesOf("a")); got != 2 || b.record("a").FailuresTotal != 0 {
			t.Errorf("outputs = %d after %d failures, want 2 and none", got, b.record("a").FailuresTotal)
		}
	})
}
