package jobs

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestFollowUpJobThatCannotBePut: the handler gets the error of the put, so that the parent is
// not committed while its follow-up job does not exist.
func TestFollowUpJobThatCannotBePut(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var refuses atomic.Bool
		refuses.Store(true)
		b.Put("parent", "parent", "")
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutMessage && refuses.Load() {
				return storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"}}
			}
			return storage.Fault{}
		})
		b.Start("vm_0", job.Kinds{
			"parent": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
				_, err := j.Put(ctx, job.FollowUp{Name: "x", Kind: "child"})
				return nil, err
			}),
			"child": rig.Echo,
		})
		time.Sleep(5 * time.Minute)
		if r := b.Record("parent"); r.Status.Final() || r.FailuresTotal != 0 {
			t.Errorf("parent whose follow-up job cannot be put = %s after %d failures, want it to wait", r.Status, r.FailuresTotal)
		}
		refuses.Store(false)
		child := job.New(job.Spec{ID: "parent"}, nil).Key("x")
		b.WaitDone("parent", time.Hour)
		b.WaitDone(child, time.Minute)
		if got := b.Record(child).Status; got != checkpoint.Done {
			t.Errorf("follow-up job = %s, want done", got)
		}
	})
}
