package queue

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/formats"
)

// shards connects to the queues of jobs of a rig.
func (b *rig) shards(t *testing.T) *Shards {
	t.Helper()
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: b.ConnectionString(), Transport: b.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	return NewShards(jobsName, account.Queue)
}

// TestShardOf: jobs are spread evenly over any number of queues, for ids of any form, and
// a job's queue is always the same. The values are fixed: programs of several versions
// put jobs.
func TestShardOf(t *testing.T) {
	for n := 1; n <= MaxShards; n++ {
		counts := make([]int, n)
		const jobs = 4800
		for i := range jobs {
			shard := ShardOf(fmt.Sprintf("job-%d", i), n)
			counts[shard]++
		}
		for shard, got := range counts {
			if want := jobs / n; got < want*8/10 || got > want*12/10 {
				t.Errorf("jobs on queue %d of %d = %d, want about %d", shard, n, got, want)
			}
		}
	}
	var got []int
	for _, id := range []string{"a", "b", "report-7", "0199c0de-0000-7000-8000-000000000000"} {
		got = append(got, ShardOf(id, 2), ShardOf(id, 16))
	}
	if want := []int{1, 13, 0, 4, 1, 9, 1, 9}; !cmp.Equal(got, want) {
		t.Errorf("shards = %v, want %v", got, want)
	}
}

// TestShardCounts: the numbers of queues are written and read, and other metadata stays.
func TestShardCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		s, other := b.shards(t), b.shards(t)
		if c, err := s.Read(t.Context()); c != (ShardCounts{1, 1}) || err != nil {
			t.Errorf("numbers without metadata = %+v, %v, want one queue", c, err)
		}
		if _, err := s.Main().client.SetMetadata(t.Context(),
			&azqueue.SetMetadataOptions{Metadata: map[string]*string{"owner": new("somebody")}}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []ShardCounts{{4, 4}, {2, 4}, {1, 3}, {1, 1}, {MaxShards, MaxShards}} {
			if err := s.Write(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			got, err := other.Read(t.Context())
			if got != want || err != nil || len(other.All()) != want.Taken || len(other.Beyond()) != MaxShards-want.Taken {
				t.Errorf("numbers = %+v, %v with %d queues, want %+v", got, err, len(other.All()), want)
			}
			properties, err := s.Main().properties(t.Context())
			if _, written := properties.Metadata["Shards"]; err != nil || written != (want.Put > 1) {
				t.Errorf("the number %d is written: %t, %v", want.Put, written, err)
			}
		}
		properties, err := s.Main().properties(t.Context())
		if err != nil || properties.Metadata["Owner"] == nil || len(properties.Metadata) != 2 {
			t.Errorf("metadata = %v, %v, want that of others kept", properties.Metadata, err)
		}
		for _, bad := range []ShardCounts{{0, 0}, {3, 2}, {17, 17}, {1, 17}, {-1, 1}} {
			if err := s.Write(t.Context(), bad); err == nil {
				t.Errorf("Write(%+v) = nil, want an error", bad)
			}
		}
	})
}

// TestShardsUnreadable: if the number makes no sense or cannot be read, the last known
// number stays.
func TestShardsUnreadable(t *testing.T) {
	for name, value := range map[string]string{"no number": "many", "too many": "17", "huge": "99999999999999999999"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				s := b.shards(t)
				if err := s.Write(t.Context(), ShardCounts{2, 2}); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Main().client.SetMetadata(t.Context(),
					&azqueue.SetMetadataOptions{Metadata: map[string]*string{shardsKey: &value}}); err != nil {
					t.Fatal(err)
				}
				if c, err := s.Read(t.Context()); c != (ShardCounts{2, 2}) || !errors.Is(err, ErrShards) {
					t.Errorf("Read = %+v, %v, want the last numbers and ErrShards", c, err)
				}
			})
		})
	}
	inBubble(t, func(t *testing.T, b *rig) {
		s := b.shards(t)
		b.faultOn(storage.OpGetQueueMetadata, allTries, storage.Fault{DropRequest: true})
		if c, err := s.Read(t.Context()); c != (ShardCounts{1, 1}) || err == nil {
			t.Errorf("Read without a network = %+v, %v, want the last numbers and an error", c, err)
		}
	})
	if c, err := parseShards(map[string]*string{shardsKey: nil, "Owner": nil}); c != (ShardCounts{1, 1}) || err != nil {
		t.Errorf("numbers of empty metadata = %+v, %v, want one queue", c, err)
	}
}

// TestReadToPut: a program that puts jobs reads the number once a minute, however many
// goroutines put, and uses the first queue where it may not.
func TestReadToPut(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		s := b.shards(t)
		if err := b.shards(t).Write(t.Context(), ShardCounts{4, 4}); err != nil {
			t.Fatal(err)
		}
		b.ResetCounts()
		b.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: 50 * time.Millisecond} })
		for range 8 {
			go s.ReadToPut(t.Context())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		s.ReadToPut(t.Context())
		if n := b.Counts()[storage.OpGetQueueMetadata]; n != 1 || s.Counts().Put != 4 {
			t.Errorf("%d reads found %+v, want one and four queues", n, s.Counts())
		}
		first := *s.readAt.Load()
		for _, row := range []struct {
			after time.Duration
			reads int64
		}{{putAge - 1, 1}, {putAge, 2}} {
			time.Sleep(time.Until(first.Add(row.after)))
			s.ReadToPut(t.Context())
			if n := b.Counts()[storage.OpGetQueueMetadata]; n != row.reads {
				t.Errorf("reads after %s = %d, want %d", row.after, n, row.reads)
			}
		}

		b.OnCall(func(storage.Call) storage.Fault {
			return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
		})
		denied := b.shards(t)
		denied.ReadToPut(t.Context())
		if q := denied.For("b"); q != denied.Main() {
			t.Errorf("queue of a program that may not read the number = %s, want the first", q.Name())
		}
		fixed := b.shards(t)
		fixed.Fix(4)
		b.ResetCounts()
		fixed.ReadToPut(t.Context())
		if n := b.Counts()[storage.OpGetQueueMetadata]; n != 0 || fixed.Counts().Put != 4 {
			t.Errorf("%d reads of a number that was given, %+v, want none and four", n, fixed.Counts())
		}
	})
}

func TestShardKeysAreDocumented(t *testing.T) {
	if diff := cmp.Diff(formats.Documented(t, "Metadata of the queue of jobs"), []string{shardsKey, takenKey}); diff != "" {
		t.Errorf("-documented +in code\n%s", diff)
	}
}
