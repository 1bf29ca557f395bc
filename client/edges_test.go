package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/queue"
)

// refused is the fault of a call that the account denies.
var refused = storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"}}

// refuse denies the calls of some operations.
func refuse(server *storage.Server, operations ...string) {
	server.OnCall(func(c storage.Call) storage.Fault {
		if slices.Contains(operations, c.Operation) {
			return refused
		}
		return storage.Fault{}
	})
}

// TestOutputs: outputs are listed, opened and selected, and an output that cannot be read is an error.
func TestOutputs(t *testing.T) {
	b := setup(t)
	claim := b.seed(t, "a", StatusRunning)
	set := b.stores.Outputs.NewSet("a", 1, claim.Token(), outputs.Limits{Files: 10, Bytes: 1 << 20}, "", nil)
	for _, path := range []string{"a.txt", "b.txt"} {
		if _, err := set.Send(t.Context(), path, 7, strings.NewReader("content")); err != nil {
			t.Fatal(err)
		}
	}
	ref, err := set.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.Outputs = checkpoint.Outputs(ref); return f })
	if err := claim.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	all, err := b.Outputs(t.Context(), "a")
	if err != nil || len(all) != 2 {
		t.Fatalf("Outputs = %+v, %v, want two", all, err)
	}
	body, err := b.OpenOutput(t.Context(), all[0])
	if err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	var fetched []string
	selected, err := b.Download(t.Context(), "a", t.TempDir(), DownloadOptions{Select: func(o Output) bool { return o.Path == "b.txt" },
		Done: func(o Output, n int64) { fetched = append(fetched, fmt.Sprint(o.Path, " ", n)) }})
	if err != nil || selected != 1 || !slices.Equal(fetched, []string{"b.txt 7"}) {
		t.Errorf("Download = %d, %v with %q, want one of 7 bytes", selected, err, fetched)
	}
	if _, err := b.stores.Account.Container(b.stores.Names.Outputs).NewBlobClient(all[0].Blob).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Download(t.Context(), "a", t.TempDir(), DownloadOptions{}); !errors.Is(err, ErrOutputGone) {
		t.Errorf("Download of an output that is gone = %v, want ErrOutputGone", err)
	}
	if _, err := b.OpenOutput(t.Context(), all[0]); !errors.Is(err, ErrOutputGone) {
		t.Errorf("OpenOutput of an output that is gone = %v, want ErrOutputGone", err)
	}
}

// poisoned puts a message on the poison queue, of a job whose queue is not used any
// more.
func poisoned(t *testing.T, s *deployment.Stores, id string) {
	t.Helper()
	text, err := queue.Envelope{ID: id, Kind: "k"}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	p := queue.Poison{ID: id, Kind: "k", Reason: "no", PoisonedAt: time.Now().UTC(), Origin: "gone", MessageID: "m-" + id, Body: text}
	if err := s.Poison.PutPoison(t.Context(), p, s.Payloads); err != nil {
		t.Fatal(err)
	}
}

// again opens a client of the same deployment, as a program that starts.
func (b *rig) again(t *testing.T) *Client {
	t.Helper()
	c, err := Open(Options{ConnectionString: b.server.ConnectionString(), Transport: b.server.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestReplayAndRequeueOverAllQueues: a program that starts reads how many queues there are before
// it puts messages.
func TestReplayAndRequeueOverAllQueues(t *testing.T) {
	for name, act := range map[string]func(t *testing.T, b *rig, ids []string) error{
		"replay": func(t *testing.T, b *rig, ids []string) error {
			for _, id := range ids {
				poisoned(t, b.stores, id)
			}
			return b.again(t).Replay(t.Context(), Selection{All: true}, ReplayOptions{}, func(r ActionResult) error { return r.Err })
		},
		"requeue": func(t *testing.T, b *rig, ids []string) error {
			for _, id := range ids {
				b.seed(t, id, StatusOpen)
			}
			reader, c := b.again(t), b.again(t)
			found, err := reader.Orphans(t.Context(), 0)
			if err != nil {
				return err
			}
			for _, o := range found.Jobs {
				if r := c.Requeue(t.Context(), o, RequeueOptions{}); r.Err != nil {
					return r.Err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			shards := queue.NewShards(b.stores.Names.Queue, b.stores.Account.Queue)
			if err := operate.Resize(t.Context(), shards, 4, 0, func(int) {}); err != nil {
				t.Fatal(err)
			}
			ids := make([]string, 20)
			for i := range ids {
				ids[i] = fmt.Sprintf("job-%d", i)
			}
			if err := act(t, b, ids); err != nil {
				t.Fatal(err)
			}
			n := 0
			for i, q := range shards.All() {
				for _, m := range b.server.Messages(q.Name()) {
					if e, err := queue.Decode(m.Text); err != nil || queue.ShardOf(e.ID, 4) != i {
						t.Errorf("job %s is on %s, %v", e.ID, q.Name(), err)
					}
					n++
				}
			}
			if n != len(ids) {
				t.Errorf("messages = %d, want %d", n, len(ids))
			}
		})
	}
}

// TestRequeueOnDemand: the message goes where it was asked for.
func TestRequeueOnDemand(t *testing.T) {
	b := setup(t)
	b.seed(t, "a", StatusOpen)
	found, err := b.Orphans(t.Context(), 0)
	if err != nil || len(found.Jobs) != 1 {
		t.Fatalf("Orphans = %+v, %v", found, err)
	}
	if r := b.Requeue(t.Context(), found.Jobs[0], RequeueOptions{OnDemand: true}); r.Err != nil || r.Action != Requeued {
		t.Fatalf("Requeue = %+v", r)
	}
	if n := len(b.server.Messages(b.stores.OnDemand.Name())); n != 1 {
		t.Errorf("messages on the on-demand queue = %d, want 1", n)
	}
}

// TestFindPoisonBehindTheFront: a message is found although the service shows only the 32 before
// it, and is visible afterwards.
func TestFindPoisonBehindTheFront(t *testing.T) {
	b := setup(t)
	for i := range 40 {
		poisoned(t, b.stores, fmt.Sprintf("job-%d", i))
	}
	if m, err := b.FindPoison(t.Context(), "job-39"); err != nil || m.JobID != "job-39" {
		t.Errorf("FindPoison = %+v, %v", m, err)
	}
	if _, err := b.FindPoison(t.Context(), "job-40"); !errors.Is(err, ErrNotPoison) {
		t.Errorf("FindPoison of another = %v, want ErrNotPoison", err)
	}
}

// TestCleanCounts: a dry run removes nothing, and jobs that cannot be removed are reported and are
// removed by a repeat.
func TestCleanCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := setup(t)
		for id, status := range map[string]Status{"a": StatusDone, "b": StatusCancelled, "c": StatusOpen} {
			c.seed(t, id, status)
		}
		time.Sleep(MinCleanAge)
		o := CleanOptions{OlderThan: MinCleanAge, DryRun: true}
		for range 2 { // nothing was removed by the first
			if r, err := c.Clean(t.Context(), o); err != nil || r.Read != 3 || r.Done != 1 || r.Cancelled != 1 {
				t.Errorf("dry run = %+v, %v, want 2 of 3", r, err)
			}
		}
		for _, s := range []Status{StatusPoison, StatusOpen, StatusRunning} {
			if _, err := c.Clean(t.Context(), CleanOptions{OlderThan: MinCleanAge, Status: []Status{s}}); err == nil {
				t.Errorf("clean of jobs that are %s is not refused", s)
			}
		}
		o.DryRun = false
		refuse(c.server, storage.OpDeleteBlob)
		failed := map[string]bool{}
		o.Failed = func(id string, _ error) { failed[id] = true }
		if r, err := c.Clean(t.Context(), o); err != nil || r.Failed != 2 || len(failed) != 2 || r.Done+r.Cancelled != 0 {
			t.Errorf("clean while removing is denied = %+v, %v with failures of %v, want two failures", r, err, failed)
		}
		c.server.OnCall(nil)
		if r, err := c.Clean(t.Context(), o); err != nil || r.Done+r.Cancelled != 2 || r.Failed != 0 {
			t.Errorf("clean again = %+v, %v, want the two jobs", r, err)
		}
	})
}

// TestEndOfContext: its cause is the error.
func TestEndOfContext(t *testing.T) {
	c := setup(t)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	c.server.OnCall(func(storage.Call) storage.Fault { cancel(enough); return storage.Fault{} })
	if _, err := c.Orphans(ctx, 0); !errors.Is(err, enough) {
		t.Errorf("Orphans whose context ends = %v, want its cause", err)
	}
}

// TestWaitFollowed: workers that do not follow are an error, and the reason is recorded.
func TestWaitFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		s, err := b.Pause(t.Context(), nil, SteerOptions{Reason: "maintenance"})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := b.Steering(t.Context()); err != nil || found.Paused == nil || found.Paused.Reason != "maintenance" {
			t.Errorf("Steering = %+v, %v, want the reason", found.Paused, err)
		}
		refuse(b.server, storage.OpListBlobs)
		if err := b.WaitFollowed(t.Context(), s, func([]string) {}); !errors.Is(err, ErrDenied) {
			t.Errorf("WaitFollowed while heartbeats cannot be listed = %v, want ErrDenied", err)
		}
	})
}
