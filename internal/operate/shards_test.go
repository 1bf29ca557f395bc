package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
)

// onShards is inBubble for a deployment whose jobs are spread over three queues.
func onShards(t *testing.T, test func(t *testing.T, b *rig)) {
	t.Helper()
	inBubble(t, func(t *testing.T, b *rig) {
		if err := Resize(t.Context(), b.stores.Jobs, 3, 0, func(int) {}); err != nil {
			t.Fatal(err)
		}
		b.Queue, b.Queues = b.stores.Jobs, b.stores.JobQueues
		test(t, b)
	})
}

// TestResize: to more queues there is nothing to wait for; to fewer, jobs are taken from
// all until the others have been empty for 75 s.
func TestResize(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		jobs := b.stores.Jobs
		resize := func(n int) error { return Resize(t.Context(), jobs, n, 10*time.Minute, func(int) {}) }
		began := time.Now()
		if err := resize(4); err != nil || jobs.Counts() != (queue.ShardCounts{Put: 4, Taken: 4}) || time.Since(began) > time.Second {
			t.Fatalf("Resize to 4 = %v, %+v, want four queues at once", err, jobs.Counts())
		}
		for _, q := range jobs.All() {
			if _, err := q.Depth(t.Context()); err != nil {
				t.Errorf("queue %s: %v", q.Name(), err)
			}
		}
		last := jobs.At(3)
		if err := last.Put(t.Context(), queue.Envelope{ID: "a", Kind: "k"}, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := resize(2); !errors.Is(err, ErrShardsInUse) || jobs.Counts() != (queue.ShardCounts{Put: 2, Taken: 4}) {
			t.Errorf("Resize to 2 with a message that is hidden = %v, %+v, want ErrShardsInUse and jobs taken from four", err, jobs.Counts())
		}
		time.Sleep(24 * time.Hour)
		time.AfterFunc(time.Minute, func() {
			leases, err := last.Claim(context.Background(), 1, time.Minute)
			for _, l := range leases {
				err = errors.Join(err, l.Complete(context.Background()))
			}
			if err != nil {
				t.Error(err)
			}
		})
		began = time.Now()
		if err := resize(2); err != nil || jobs.Counts() != (queue.ShardCounts{Put: 2, Taken: 2}) {
			t.Errorf("Resize again = %v, %+v, want two queues", err, jobs.Counts())
		}
		if took := time.Since(began); took < 55*time.Second+shardsEmptyFor || took > 70*time.Second+shardsEmptyFor {
			t.Errorf("it took %s, want 75 s from when the queue was empty after 1 min", took)
		}
		if err := resize(17); err == nil {
			t.Error("Resize to 17 queues = nil, want an error")
		}
	})
}

// TestOperatorsSeeAllShards: what operators do about jobs looks at every queue of jobs.
func TestOperatorsSeeAllShards(t *testing.T) {
	onShards(t, func(t *testing.T, b *rig) {
		jobs := b.stores.Jobs
		c := &Canceller{Records: b.stores.Records, Control: b.stores.Control, Name: "spotctl@test",
			Queues: func(context.Context) ([]*queue.Queue, error) {
				return append(slices.Clip(jobs.All()), b.OnDemand), nil
			}}
		var ids []string
		for i, q := range jobs.All() {
			id := fmt.Sprintf("job-%d", i)
			ids = append(ids, id)
			if err := q.Put(t.Context(), queue.Envelope{ID: id, Kind: "k"}, 0); err != nil {
				t.Fatal(err)
			}
		}
		outcomes := map[string]Action{}
		if err := c.Cancel(t.Context(), slices.Values(append(ids, "nowhere")),
			func(o CancelOutcome) error { outcomes[o.ID] = o.Action; return nil }); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if outcomes[id] != Cancelled {
				t.Errorf("cancel of %s, which waits = %s, want cancelled", id, outcomes[id])
			}
		}
		if outcomes["nowhere"] != Unknown {
			t.Errorf("cancel of a job that is on no queue = %s, want unknown", outcomes["nowhere"])
		}

		found, err := b.Orphans(t.Context(), 0)
		if err != nil || found.Queued != 3 || found.Seen != 3 {
			t.Errorf("Orphans saw %d of %d messages, %v, want 3 of 3", found.Seen, found.Queued, err)
		}

		time.Sleep(9 * 24 * time.Hour)
		cleaner := &Cleaner{Records: b.stores.Records, Logs: b.stores.Logs, Queues: b.Queues, Poison: b.Poison,
			OlderThan: MinCleanAge, Select: func(checkpoint.Record) bool { return true }}
		for i, q := range jobs.All() {
			if _, err := cleaner.Clean(t.Context(), nil, nil); !errors.Is(err, ErrBacklog) || !strings.Contains(err.Error(), "queue "+q.Name()+" ") {
				t.Errorf("Clean with an old message on %s = %v, want ErrBacklog for it", q.Name(), err)
			}
			leases, err := q.Claim(t.Context(), 1, time.Hour)
			if err != nil || len(leases) != 1 {
				t.Fatalf("message %d: %v", i, err)
			}
			if err := leases[0].Complete(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
