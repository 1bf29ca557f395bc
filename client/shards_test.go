package client

import (
	"fmt"
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/queue"
)

// TestPutOverShards: jobs are spread over all queues by their ids, and counted on all.
func TestPutOverShards(t *testing.T) {
	b := setup(t)
	if err := operate.Resize(t.Context(), queue.NewShards(b.stores.Names.Queue, b.stores.Account.Queue), 4, 0, func(int) {}); err != nil {
		t.Fatal(err)
	}
	if sum, err := b.PutMany(t.Context(), numbered(400, "job-"), PutOptions{}); err != nil || sum.Put != 400 {
		t.Fatalf("PutMany = %+v, %v", sum, err)
	}
	got, err := b.Queues(t.Context())
	if err != nil || len(got.Shards) != 4 || got.PutOver != 4 || got.Jobs.Messages != 400 {
		t.Errorf("Queues = %+v, %v, want four with 400 messages", got, err)
	}
	for i, q := range got.Shards {
		if q.Messages < 80 || q.Messages > 120 {
			t.Errorf("messages on %s = %d, want about 100", q.Name, q.Messages)
		}
		for _, m := range b.server.Messages(q.Name) {
			if e, err := queue.Decode(m.Text); err != nil || queue.ShardOf(e.ID, 4) != i {
				t.Errorf("job %s is on %s, %v", e.ID, q.Name, err)
			}
		}
	}
}

// TestShardsOption: a program that may not read the number of queues can be told.
func TestShardsOption(t *testing.T) {
	b := setupBare(t, Options{Shards: 2})
	if err := b.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.stores.Jobs.At(1).Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == storage.OpGetQueueMetadata {
			return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
		}
		return storage.Fault{}
	})
	for i := range 20 {
		if _, err := b.Put(t.Context(), Spec{Kind: "k", ID: fmt.Sprintf("job-%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	first, second := len(b.server.Messages("spotworker-jobs")), len(b.server.Messages("spotworker-jobs-1"))
	if first+second != 20 || first == 0 || second == 0 {
		t.Errorf("messages on the two queues = %d and %d, want 20 on both", first, second)
	}
	if _, err := Open(Options{Account: "a", Shards: 17}); err == nil {
		t.Error("Open with 17 queues = nil, want an error")
	}
}
