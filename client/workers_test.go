package client

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/queue"
)

func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		noon := time.Now().UTC().Truncate(time.Second)
		p := presence.Presence{
			Worker: "vm_0-1-0", Machine: presence.Machine{VM: "vm_0"}, State: "process", StartedAt: noon, At: noon,
			Program:   "1.2.3",
			TakesFrom: []string{"spotworker-jobs"}, Kinds: []string{"digest"}, Asked: presence.AskedPause, Jobs: []string{"a", "b"},
			LastEvent: presence.Event{ID: "E-1", Type: "Preempt", Status: "Scheduled", Action: "hand over", SeenAt: noon},
			LastDrain: presence.Drain{Reason: "evicted", EndedAt: noon, Took: time.Second, Budget: 10 * time.Second, Jobs: 2, Released: 2},
		}
		if err := b.stores.Workers.Write(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want := Worker{
			Name: "vm_0-1-0", VM: "vm_0", State: "process", Version: "1.2.3", StartedAt: noon, Age: time.Minute,
			Queues: []string{"spotworker-jobs"}, Kinds: []string{"digest"}, Asked: "pause", Jobs: 2,
			LastEvent: &Event{ID: "E-1", Type: "Preempt", Status: "Scheduled", Action: "hand over", SeenAt: noon},
			LastDrain: &Drain{Reason: "evicted", EndedAt: noon, Took: time.Second, Budget: 10 * time.Second, Jobs: 2, Released: 2},
		}
		all, err := b.Workers(t.Context())
		if diff := cmp.Diff([]Worker{want}, all); diff != "" || err != nil {
			t.Errorf("Workers: %v (-want +got)\n%s", err, diff)
		}
		one, err := b.Worker(t.Context(), "vm_0-1-0")
		want.JobIDs = []string{"a", "b"}
		if diff := cmp.Diff(want, one); diff != "" || err != nil {
			t.Errorf("Worker: %v (-want +got)\n%s", err, diff)
		}
		if _, err := b.Worker(t.Context(), "vm_1-1-0"); !errors.Is(err, ErrNoWorker) {
			t.Errorf("Worker of another name = %v, want ErrNoWorker", err)
		}
	})
}

func TestQueues(t *testing.T) {
	b := setup(t)
	for range 3 {
		if err := b.stores.Queue.Put(t.Context(), queue.Envelope{ID: "a", Kind: "k"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.stores.OnDemand.Put(t.Context(), queue.Envelope{ID: "b", Kind: "k"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	b.server.ResetCounts()
	got, err := b.Queues(t.Context())
	want := Queues{
		Jobs: Queue{"spotworker-jobs", true, 3}, First: Queue{"spotworker-jobs-first", true, 0},
		OnDemand: Queue{"spotworker-jobs-ondemand", true, 1}, Poison: Queue{"spotworker-jobs-poison", true, 0},
		Shards: []Queue{{"spotworker-jobs", true, 3}}, PutOver: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Queues: %v (-want +got)\n%s", err, diff)
	}
	if n := b.server.Counts()[storage.OpGetQueueMetadata]; n != 4 {
		t.Errorf("%d calls, want 4", n)
	}
	bare := setupBare(t, Options{Prefix: "none"})
	if got, err := bare.Queues(t.Context()); err != nil || got.Jobs.Exists || got.Jobs.Name != "none-jobs" {
		t.Errorf("Queues before they were created = %+v, %v, want that they do not exist", got, err)
	}
}

// TestHeartbeatContent: event, activity and findings are there if the heartbeat has any, with
// all fields.
func TestHeartbeatContent(t *testing.T) {
	lacks, reading := presence.KindCount{Kind: "k", Jobs: 2}, presence.Reading{Queue: "q", Messages: 3, Age: time.Minute}
	kind := activity.Kind{Name: "k", Done: 1, Failed: 2, Efforts: activity.Efforts{Committed: 3, HandedOver: 4, Failed: 5, Redone: 6},
		Durations: activity.Histogram{{Index: 0, Count: 7}, {Index: 40, Count: 8}}}
	for name, row := range map[string]struct {
		beat func(*presence.Presence)
		want Worker
	}{
		"nothing":         {func(*presence.Presence) {}, Worker{}},
		"an event's id":   {func(p *presence.Presence) { p.LastEvent.ID = "e" }, Worker{LastEvent: &Event{ID: "e"}}},
		"an event's type": {func(p *presence.Presence) { p.LastEvent.Type = "Preempt" }, Worker{LastEvent: &Event{Type: "Preempt"}}},
		"a kind without a worker": {func(p *presence.Presence) { p.Findings.Lacks = []presence.KindCount{lacks} },
			Worker{Findings: &Findings{WithoutWorker: []KindCount{lacks}}}},
		"a state without a machine": {func(p *presence.Presence) { p.Findings.Unlike = []presence.KindCount{lacks} },
			Worker{Findings: &Findings{WithoutMachine: []KindCount{lacks}}}},
		"jobs with many GPUs": {func(p *presence.Presence) {
			p.GPUs, p.Findings.TooLarge = 1, []presence.KindCount{{Kind: "k/4", Jobs: 2}, {Kind: "*", Jobs: 9}}
		}, Worker{GPUs: 1, Findings: &Findings{TooLarge: []GPUCount{{"k", 4, 2}}}}},
		"a machine": {func(p *presence.Presence) { p.Offers = []string{"m", "n"} }, Worker{Offers: []string{"m", "n"}}},
		"a silent job": {func(p *presence.Presence) { p.Findings.Silent, p.Findings.SilentJob = 1, "j" },
			Worker{Findings: &Findings{SilentJobs: 1, SilentJob: "j"}}},
		"a reading": {func(p *presence.Presence) { p.Findings.Readings = []presence.Reading{reading} },
			Worker{Findings: &Findings{Earlier: []QueueReading{reading}}}},
		"calls": {func(p *presence.Presence) {
			p.Findings.Calls = activity.CallReport{Count: 9, Slow: 3, Failed: 8, Denied: 1, Throttled: 2, Missing: 4}
		}, Worker{Findings: &Findings{Calls: 9, SlowCalls: 3, FailedCalls: 8, DeniedCalls: 1, ThrottledCalls: 2, MissingCalls: 4}}},
		"trouble": {func(p *presence.Presence) { p.Findings.Trouble.Crashes = 2 }, Worker{Findings: &Findings{Trouble: Trouble{Crashes: 2}}}},
		"one slot": {func(p *presence.Presence) {
			p.Activity = activity.Report{Slots: 1, Times: activity.Times{Handler: 1, Around: 2, Idle: 3, Closed: 4}}
		}, Worker{Activity: &Activity{Slots: 1, Handler: 1, Around: 2, Idle: 3, Closed: 4}}},
		"a kind": {func(p *presence.Presence) { p.Activity = activity.Report{Slots: 2, Kinds: []activity.Kind{kind}} },
			Worker{Activity: &Activity{Slots: 2, Kinds: []KindActivity{{Kind: "k", Done: 1, Failed: 2, Committed: 3, HandedOver: 4,
				FailedTime: 5, Redone: 6, Durations: []DurationCount{{time.Millisecond, 7}, {1024 * time.Millisecond, 8}}}}}}},
	} {
		var p presence.Presence
		row.beat(&p)
		if diff := cmp.Diff(row.want, workerOf(presence.Listed{Presence: p})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestQueuesInOrder: queues that no job is put on come last, a queue may be missing, and a queue that
// cannot be counted is an error.
func TestQueuesInOrder(t *testing.T) {
	c := setup(t)
	shards := queue.NewShards(c.stores.Names.Queue, c.stores.Account.Queue)
	if err := operate.Resize(t.Context(), shards, 2, 0, func(int) {}); err != nil {
		t.Fatal(err)
	}
	if err := shards.Write(t.Context(), queue.ShardCounts{Put: 1, Taken: 2}); err != nil { // the second is being left
		t.Fatal(err)
	}
	if err := shards.At(1).Put(t.Context(), queue.Envelope{ID: "a", Kind: "k"}, 0); err != nil {
		t.Fatal(err)
	}
	q, err := c.Queues(t.Context())
	want := []Queue{{"spotworker-jobs", true, 0}, {"spotworker-jobs-1", true, 1}}
	if diff := cmp.Diff(want, q.Shards); err != nil || diff != "" || q.PutOver != 1 || q.Jobs.Messages != 1 {
		t.Errorf("Queues put over %d of 1 queues with %d of 1 messages, %v (-want +got):\n%s", q.PutOver, q.Jobs.Messages, err, diff)
	}
	fail := func(fault storage.Fault, names ...string) {
		c.server.OnCall(func(call storage.Call) storage.Fault {
			if slices.Contains(names, call.Queue) {
				return fault
			}
			return storage.Fault{}
		})
	}
	fail(storage.Fault{Refuse: &storage.Error{Status: 404, Code: "QueueNotFound"}}, c.stores.Names.Poison)
	if q, err := c.Queues(t.Context()); err != nil || q.Poison.Exists || !q.OnDemand.Exists {
		t.Errorf("Queues = %+v, %v, want that the poison queue is missing", q, err)
	}
	for _, name := range []string{c.stores.Names.Queue, "spotworker-jobs-1", c.stores.Names.OnDemand} {
		fail(refused, name)
		if _, err := c.Queues(t.Context()); !errors.Is(err, ErrDenied) {
			t.Errorf("Queues without %s = %v, want ErrDenied", name, err)
		}
	}
	c.server.OnCall(nil)
	if _, err := c.Waited(t.Context(), "other"); err == nil {
		t.Error("Waited of another queue gives no error")
	}
}
