package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

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
		b.Queue = b.stores.Jobs
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
		cleaner := &Cleaner{Records: b.stores.Records, Logs: b.stores.Logs, Queue: jobs, OnDemand: b.OnDemand, Poison: b.Poison,
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

// TestReplayToShard: a replayed job goes to the queue that it came from. If that queue
// is no longer used, the job goes to the queue of its id.
func TestReplayToShard(t *testing.T) {
	onShards(t, func(t *testing.T, b *rig) {
		jobs := b.stores.Jobs
		for id, origin := range map[string]string{"a": jobs.At(0).Name(), "b": jobs.At(2).Name(), "c": jobs.At(7).Name()} {
			text, err := queue.Envelope{ID: id, Kind: "k"}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			p := queue.Poison{ID: id, Kind: "k", Reason: "no", PoisonedAt: time.Now().UTC(), Origin: origin, MessageID: "m-" + id, Body: text}
			if err := b.stores.Poison.PutPoison(t.Context(), p, b.stores.Payloads); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Replay(t.Context(), all, false, b.report); err != nil || b.actions() != "replayed replayed replayed" {
			t.Fatalf("Replay = %+v, %v", b.told, err)
		}
		for id, want := range map[string]*queue.Queue{"a": jobs.At(0), "b": jobs.At(2), "c": jobs.For("c")} {
			has := false
			for _, m := range b.server.Messages(want.Name()) {
				e, err := queue.Decode(m.Text)
				has = has || err == nil && e.ID == id
			}
			if !has {
				t.Errorf("job %s is not on %s", id, want.Name())
			}
		}
	})
}

// TestResizeEdges: a wait ends at 75 s, also where the patience is no longer than that, and has no
// end where no patience is set. Missing queues are empty, and no queue too many is made.
func TestResizeEdges(t *testing.T) {
	for name, row := range map[string]struct {
		before   func(t *testing.T, b *rig)
		to       int
		patience time.Duration
		takes    time.Duration
		looks    []int // the first
		err      error
	}{
		"more":              {to: 4, looks: nil},
		"the same":          {to: 3, looks: nil},
		"fewer":             {to: 2, patience: shardsEmptyFor, takes: shardsEmptyFor, looks: []int{0, 0}},
		"too short":         {to: 2, patience: shardsEmptyFor - 1, takes: shardsEmptyFor - shardsPoll, looks: []int{0, 0}, err: ErrShardsInUse},
		"without patience":  {to: 1, takes: shardsEmptyFor, looks: []int{0, 0}},
		"a queue is gone":   {before: deleteLast, to: 1, patience: time.Hour, takes: shardsEmptyFor, looks: []int{0, 0}},
		"the next has jobs": {before: putNext, to: 1, patience: time.Minute, takes: time.Minute, looks: []int{1, 1}, err: ErrShardsInUse},
	} {
		onShards(t, func(t *testing.T, b *rig) {
			if row.before != nil {
				row.before(t, b)
			}
			began := time.Now()
			var looks []int
			err := Resize(t.Context(), b.stores.Jobs, row.to, row.patience, func(n int) { looks = append(looks, n) })
			if took := time.Since(began); !errors.Is(err, row.err) || took != row.takes || !slices.Equal(looks[:min(2, len(looks))], row.looks) {
				t.Errorf("%s: Resize = %v after %s, messages at the looks %v; want %v after %s", name, err, took, looks, row.err, row.takes)
			}
			if _, err := b.stores.Jobs.At(max(row.to, 3)).Depth(t.Context()); err == nil {
				t.Errorf("%s: queue %d exists, want no more than were asked for", name, max(row.to, 3))
			}
		})
	}
}

func deleteLast(t *testing.T, b *rig) {
	t.Helper()
	if _, err := b.stores.Account.Queue(b.stores.Jobs.At(2).Name()).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

func putNext(t *testing.T, b *rig) {
	t.Helper()
	if err := b.stores.Jobs.At(1).Put(t.Context(), queue.Envelope{ID: "a", Kind: "k"}, 0); err != nil {
		t.Fatal(err)
	}
}

// TestResizeRepairs: numbers of queues that cannot be read are replaced, also by the number that
// holds without them.
func TestResizeRepairs(t *testing.T) {
	for _, to := range []int{1, 2} {
		inBubble(t, func(t *testing.T, b *rig) {
			main := b.stores.Account.Queue(b.names.Queue)
			damaged := map[string]*string{"shards": new("many")}
			if _, err := main.SetMetadata(t.Context(), &azqueue.SetMetadataOptions{Metadata: damaged}); err != nil {
				t.Fatal(err)
			}
			if _, err := b.stores.Jobs.Read(t.Context()); !errors.Is(err, queue.ErrShards) {
				t.Fatalf("Read of damaged numbers = %v, want ErrShards", err)
			}
			if err := Resize(t.Context(), b.stores.Jobs, to, 0, func(int) {}); err != nil {
				t.Errorf("Resize to %d = %v", to, err)
			}
			if got, err := b.stores.Jobs.Read(t.Context()); err != nil || got.Put != to || got.Taken != to {
				t.Errorf("numbers after Resize to %d = %+v, %v", to, got, err)
			}
		})
	}
}
