package fleets

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/job"
)

// TestShardsMultiplyTheLimit: with N queues a fleet does N times the jobs that the limit
// of one queue allows. The queues and the workers have equal shares, and few calls are
// refused. In full, with the limit of Azure.
func TestShardsMultiplyTheLimit(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	tests := []struct{ shards, workers, limit int }{{2, 2, 300}}
	if *full {
		tests = []struct{ shards, workers, limit int }{{1, 4, 2000}, {2, 4, 2000}, {4, 4, 2000}}
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d queues, %d workers", tt.shards, tt.workers), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.UseShards(queue.ShardCounts{Put: tt.shards, Taken: tt.shards})
				window := time.Duration(repeats(20, 60)) * time.Second
				r := runAtLimit(b, tt.workers, tt.limit, 15*time.Second, window)
				refused := float64(r.refused) / float64(r.calls)
				used := float64(r.done) / (window.Seconds() * float64(tt.limit*tt.shards) / 2)
				t.Logf("%d queues, %d workers, %s: %.0f jobs a second, %.2f %% of %d calls refused, %.1f %% of the limit used, fairness of queues "+
					"%.3f, of workers %.3f",
					tt.shards, tt.workers, window, float64(r.done)/window.Seconds(), 100*refused, r.calls, 100*used, r.queueFairness(), r.fairness())
				if refused > 0.03 {
					t.Errorf("calls refused = %.2f %%, want at most 3 %%", 100*refused)
				}
				if used < 0.8 {
					t.Errorf("jobs done = %.1f %% of the limit, want at least 80 %%: one queue allows 50 %%", 100*used)
				}
				if f := r.queueFairness(); f < 0.98 {
					t.Errorf("fairness of the queues = %.3f, want at least 0.98: %v", f, r.doneOn)
				}
				if f := r.fairness(); f < 0.75 {
					t.Errorf("fairness of the workers = %.3f, want at least 0.75: %.0f", f, r.shares)
				}
			})
		})
	}
}

// shardFault is the fault of one of several queues.
type shardFault struct {
	fault  storage.Fault
	remove bool // the queue is deleted
}

var shardFaults = map[string]shardFault{
	"no role":         {fault: storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}},
	"busy":            {fault: storage.Fault{Refuse: storage.ServerBusy(0)}},
	"broken":          {fault: storage.Fault{Refuse: &storage.Error{Status: 500, Code: "InternalError"}}},
	"does not answer": {fault: storage.Fault{Before: 10 * time.Minute}},
	"deleted":         {remove: true},
}

// TestShardFails: a queue that fails holds up neither the jobs of the others nor a worker
// that starts. Its own jobs are done when it works again.
func TestShardFails(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	const shards, jobs = 4, 400
	for name, f := range shardFaults {
		for _, when := range []string{"at the start", "later"} {
			t.Run(name+" "+when, func(t *testing.T) {
				rig.Run(t, func(t *testing.T, b *rig.Bed) {
					b.UseShards(queue.ShardCounts{Put: shards, Taken: shards})
					sick := queue.ShardName(b.Names.Queue, 2)
					fail := func() { failQueue(b, sick, f) }
					if when == "at the start" {
						fail()
					}
					p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, func(c *worker.Config) { c.Concurrency = 8 })
					time.Sleep(20 * time.Second)
					if when == "later" {
						fail()
						time.Sleep(20 * time.Second)
					}
					began, left := time.Now(), jobs
					for i := range jobs {
						if id := fmt.Sprintf("job-%d", i); b.Jobs.For(id).Name() != sick {
							b.Put(id, "echo", "1")
						} else {
							left--
						}
					}
					others := func() (n int) {
						for _, q := range b.Jobs.All() {
							if q.Name() != sick {
								n += len(b.Server.Messages(q.Name()))
							}
						}
						return n
					}
					b.WaitFor("jobs of the other queues", time.Minute, func() bool { return others() == 0 })
					// An idle worker polls each queue every second.
					if took := time.Since(began); took > 4*time.Second {
						t.Errorf("%d jobs of the other queues took %s, want at most 4s", left, took)
					}
					if when == "at the start" && !f.remove && f.fault.Before == 0 &&
						len(p.Log.Find("queue cannot be read; its jobs wait, and those of the other queues do not")) != 1 {
						t.Error("the log does not have the queue that cannot be read")
					}
					b.Server.OnCall(nil)
					if f.remove {
						if err := b.Jobs.All()[2].Create(t.Context()); err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Minute) // Azure takes half a minute to delete a queue
					}
					b.PutOn(b.Jobs.All()[2], "recovered", "echo", "1")
					b.WaitDone("recovered", 2*time.Minute)
				})
			})
		}
	}
}

// failQueue makes all calls to a queue fail, or deletes it.
func failQueue(b *rig.Bed, name string, f shardFault) {
	if f.remove {
		if _, err := b.Account(b.Server.Transport()).Queue(name).Delete(b.T.Context(), nil); err != nil {
			b.T.Fatal(err)
		}
		return
	}
	b.Server.OnCall(func(c storage.Call) storage.Fault {
		if c.Queue == name {
			return f.fault
		}
		return storage.Fault{}
	})
}

// TestIdlePickUpOfShards: however many queues there are, a job is claimed as soon as from
// one. Each costs a poll a second of a worker without work, and some five of a fleet.
func TestIdlePickUpOfShards(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	for _, row := range []struct{ shards, workers int }{{2, 1}, {4, 1}, {4, 4}, {4, 16}} {
		t.Run(fmt.Sprintf("%d queues, %d workers", row.shards, row.workers), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.UseShards(queue.ShardCounts{Put: row.shards, Taken: row.shards})
				p := idleFleet(b, row.workers)
				time.Sleep(2 * time.Minute) // the workers have counted each other
				var waits []time.Duration
				for range repeats(max(100, 300/row.workers), 1000) {
					waits = append(waits, p.measure(8*time.Second))
				}
				b.Server.ResetCounts()
				time.Sleep(5 * time.Minute)
				polls := float64(b.Server.Counts()[storage.OpGetMessages]) / 300
				got := percentilesOf(waits)
				t.Logf("put to claim: mean %s, %s; %.1f polls a second", mean(waits).Round(time.Millisecond), got, polls)
				mostP99 := 1200 * time.Millisecond
				if row.workers > 5 {
					mostP99 = 1500 * time.Millisecond // they do not poll every second, and not in turn
				}
				if m := mean(waits); m > 600*time.Millisecond || got.p99 > mostP99 {
					t.Errorf("mean and p99 = %s and %s, want at most 600ms and %s", m, got.p99, mostP99)
				}
				if most := float64(min(row.workers, 5)) * (float64(row.shards) + 0.5) * 1.1; polls > most { // and of the queue First half of one
					t.Errorf("polls a second = %.1f, want at most %.1f", polls, most)
				}
			})
		})
	}
}

// TestNumberOfShardsChanges: workers follow the number of queues within some 75 s. While
// it shrinks they take from all that may have jobs, and then from the rest alone.
func TestNumberOfShardsChanges(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Sharded = true
		b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		time.Sleep(5 * time.Second)
		b.Put("before", "echo", "1")
		b.WaitDone("before", 10*time.Second)

		b.UseShards(queue.ShardCounts{Put: 3, Taken: 3})
		for i, q := range b.Jobs.All() {
			b.PutOn(q, fmt.Sprintf("of-%d", i), "echo", "1")
		}
		b.WaitDone("of-1", 90*time.Second)
		b.WaitDone("of-2", 10*time.Second)
		time.Sleep(20 * time.Second)
		p, _, err := b.Workers.Read(t.Context(), "vm_0-11112222-0")
		if p.VM != "vm_0" || p.Size != "Standard_D2as_v5" || p.Zone != "2" {
			t.Errorf("the heartbeat names the machine %+v, want the VM, its size and its zone", p.Machine)
		}
		if err != nil ||
			strings.Join(p.TakesFrom, ",") != strings.Join(append(queue.Names(b.Jobs.All()), b.Names.First), ",") {
			t.Errorf("the heartbeat names the queues %v, %v, want all", p.TakesFrom, err)
		}

		if err := b.Jobs.Write(t.Context(), queue.ShardCounts{Put: 1, Taken: 3}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		last := b.Jobs.All()[2]
		b.PutOn(last, "late", "echo", "1")
		b.WaitDone("late", 20*time.Second)
		if name := b.Jobs.For("of-2").Name(); name != b.Names.Queue {
			t.Errorf("a job is put on %s, want the first queue", name)
		}

		if err := b.Jobs.Write(t.Context(), queue.ShardCounts{Put: 1, Taken: 1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		claims := claimsOf(b)
		b.Put("after", "echo", "1")
		b.WaitDone("after", 10*time.Second)
		time.Sleep(time.Minute)
		if n := claims(last.Name()); n != 0 || claims(b.Names.Queue) < 50 {
			t.Errorf("claims from a queue that is not used any more = %d, from the first %d, want none and one a second", n, claims(b.Names.Queue))
		}
	})
}

// TestShardNames: the first queue has the plain name, so that programs without shards
// share it, and no other name of a deployment is a shard's.
func TestShardNames(t *testing.T) {
	n, err := azure.NamesFor("p", "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range queue.MaxShards {
		if name := queue.ShardName(n.Queue, i); (name == n.Queue) != (i == 0) || name == n.OnDemand || name == n.Poison {
			t.Errorf("shard %d is called %s", i, name)
		}
	}
}
