package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

// steady is picky, and reports a state with needs until it is stopped.
type steady struct{ picky }

func (s steady) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	j.Report(job.Progress{State: []byte("s"), Needs: s.machine})
	return nil, sleeps(ctx, time.Hour)
}

// regular returns the heartbeat of a worker of the on-demand queue that offers a machine.
func (b *bench) regular(name, machine string) presence.Presence {
	return presence.Presence{Worker: name, State: "process", Kinds: []string{"k"}, TakesFrom: []string{b.Names.OnDemand},
		Offers: []string{machine}}
}

// write writes a heartbeat once.
func (b *bench) write(p presence.Presence) {
	b.T.Helper()
	if err := b.Workers.Write(b.T.Context(), p); err != nil {
		b.T.Fatal(err)
	}
}

// onDemandFleets are the heartbeats of workers of the on-demand queue, and whether a state that needs the machine
// "large" moves to them.
var onDemandFleets = map[string]struct {
	prepare func(b *bench)
	moves   bool // if nothing shows who meets the needs, a release moves the job
	known   bool
}{
	"none":             {func(*bench) {}, true, false},
	"another machine":  {func(b *bench) { b.write(b.regular("vm_1-boot-1", "small")) }, false, true},
	"the same machine": {func(b *bench) { b.write(b.regular("vm_1-boot-1", "large")) }, true, true},
	"not announced": {func(b *bench) {
		p := b.regular("vm_1-boot-1", "")
		p.Offers = nil
		b.write(p)
	}, true, true},
	"one of both": {func(b *bench) {
		b.write(b.regular("vm_1-boot-1", "small"))
		b.write(b.regular("vm_2-boot-1", "large"))
	}, true, true},
	"the same machine on the queue of jobs": {func(b *bench) {
		p := b.regular("vm_2-boot-1", "large")
		p.TakesFrom = []string{b.Names.Queue}
		b.write(p)
		b.write(b.regular("vm_1-boot-1", "small"))
	}, false, true},
	"another machine that has ended": {func(b *bench) {
		p := b.regular("vm_1-boot-1", "small")
		p.State = "stopped"
		b.write(p)
		time.Sleep(23 * time.Hour)
	}, false, true},
	"another machine, two days ago": {func(b *bench) {
		b.write(b.regular("vm_1-boot-1", "small"))
		time.Sleep(48 * time.Hour)
	}, true, false},
	"the same machine, and another one that is alive": {func(b *bench) {
		b.write(b.regular("vm_1-boot-1", "large"))
		time.Sleep(time.Hour)
		b.write(b.regular("vm_2-boot-1", "small"))
	}, false, true},
	"heartbeats not listed": {func(b *bench) {
		b.write(b.regular("vm_1-boot-1", "small"))
		b.down(on(b.Names.Workers, storage.OpListBlobs))
	}, true, false},
}

// TestReleaseMovesToAMatch: a job that is released often enough moves to the on-demand queue only if a worker of that
// queue may meet the needs of its state. Its record gives a reason for a move only then.
func TestReleaseMovesToAMatch(t *testing.T) {
	for name, row := range onDemandFleets {
		t.Run(name, func(t *testing.T) {
			set := func(b *bench) { b.config.MoveAfter = 1 }
			onBench(t, job.Kinds{"k": steady{picky{"large"}}}, func(t *testing.T, b *bench) {
				row.prepare(b)
				b.Put("a", "k", "")
				wait := b.begin(b.claim())
				time.Sleep(20 * time.Second)
				b.drainNow(10 * time.Second)
				wait()
				r := b.Record("a")
				if r.Status != checkpoint.Open || r.StateNeeds != "large" || r.MoveReason != "" != row.moves {
					t.Errorf("record = %s, needs %q, moved because %q; want it open, with needs, moved: %t", r.Status, r.StateNeeds, r.MoveReason,
						row.moves)
				}
				if moved := b.onDemand() == 1; moved != row.moves || moved == (b.visible() == 1) {
					t.Errorf("%d messages on the on-demand queue, %d visible on its own; want one, moved: %t", b.onDemand(), b.visible(), row.moves)
				}
				stays := b.lines("job stays on its queue: no worker of the on-demand queue meets the needs of its state")
				if (stays == 1) == row.moves {
					t.Errorf("%d lines say that it stays, moved: %t", stays, row.moves)
				}
			}, set)
		})
	}
}

// TestReleasesWithoutHeartbeats: a drain of many jobs that are to move waits once for heartbeats that do not come, and moves them.
func TestReleasesWithoutHeartbeats(t *testing.T) {
	jobs := proof.Times(100, 1000)
	set := func(b *bench) { b.config.MoveAfter = 1 }
	onBench(t, job.Kinds{"k": steady{picky{"large"}}}, func(t *testing.T, b *bench) {
		var waits []func() delivery.Result
		for i := range jobs {
			b.Put(fmt.Sprint("job-", i), "k", "")
			waits = append(waits, b.begin(b.claim()))
		}
		time.Sleep(20 * time.Second)
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if on(b.Names.Workers, storage.OpListBlobs)(c) {
				return storage.Fault{Before: 5 * time.Minute}
			}
			return storage.Fault{}
		})
		begun := time.Now()
		b.drainNow(10 * time.Second)
		for _, wait := range waits {
			wait()
		}
		if took := time.Since(begun); b.onDemand() != jobs || took > 2500*time.Millisecond {
			t.Errorf("%d jobs moved in %s, want %d in 2.5 s", b.onDemand(), took, jobs)
		}
	}, set)
}

// putDue enqueues a job that has lost a VM, with a state that needs the machine "large" and a near deadline.
func (b *bench) putDue(id string, due time.Duration) {
	b.T.Helper()
	e := queue.Envelope{ID: id, Kind: "k", Resume: true, Deadline: time.Now().Add(due), Estimate: 30 * time.Minute}
	c := b.Records.Fresh(former(e), "vm_9-boot-1")
	last := checkpoint.Snapshot{State: []byte("s"), Needs: "large"}
	if err := errors.Join(c.Touch(b.T.Context(), checkpoint.Snapshot{}), c.Release(b.T.Context(), last)); err != nil {
		b.T.Fatal(err)
	}
	b.put(e)
}

// TestClaimMovesToAMatch: a job that may miss its deadline moves at its claim on a machine that meets the needs of its state,
// and while it waits, only if a worker of the on-demand queue may meet them too.
func TestClaimMovesToAMatch(t *testing.T) {
	for name, row := range onDemandFleets {
		t.Run(name, func(t *testing.T) {
			set := func(b *bench) { b.config.Changeover = 10 * time.Minute }
			onBench(t, job.Kinds{"k": picky{"large"}}, func(t *testing.T, b *bench) {
				row.prepare(b)
				b.putDue("a", 45*time.Minute)
				own := b.config.Stores.Queue
				seen, err := own.Peek(t.Context(), 1)
				if err != nil || len(seen) != 1 {
					t.Fatalf("peek = %d messages, %v", len(seen), err)
				}
				if found, err := b.AtRisk(t.Context(), seen); err != nil || len(found) == 1 != row.moves {
					t.Errorf("at risk = %d messages, %v; want one: %t", len(found), err, row.moves)
				}
				b.runOne()
				if moved := b.onDemand() == 1; moved != row.moves || (b.Record("a").Status == checkpoint.Done) == row.moves {
					t.Errorf("moved: %t, record %s; want moved: %t, or done", moved, b.Record("a").Status, row.moves)
				}
			}, set)
		})
	}
}

// TestUnmetNeedsAndADeadline: a job that waits for another machine and may miss its deadline moves to the on-demand queue if a
// worker there is known to meet the needs of its state, or may meet them. While a live worker of its own queue meets them, it
// waits for that worker for a minute.
func TestUnmetNeedsAndADeadline(t *testing.T) {
	for name, row := range onDemandFleets {
		for busy, looks := range map[bool]int{false: 1, true: 2} {
			t.Run(name, func(t *testing.T) {
				set := func(b *bench) { b.config.Changeover = 10 * time.Minute }
				onBench(t, job.Kinds{"k": picky{"small"}}, func(t *testing.T, b *bench) {
					row.prepare(b)
					if busy {
						p := b.other()
						p.Worker, p.Offers = "vm_7-boot-1", []string{"large"}
						defer b.keepAlive(p)()
					}
					b.putDue("a", 47*time.Minute)
					moves := row.moves && row.known
					for look := range looks {
						b.runOne()
						moved := b.onDemand() == 1
						if moved != (moves && look == looks-1) {
							t.Fatalf("look %d: moved: %t, want %t", look, moved, moves)
						}
						if !moved {
							b.WaitFor("the message", 10*time.Minute, func() bool { return b.visible() == 1 })
							time.Sleep(time.Minute)
						}
					}
					r := b.Record("a")
					if moves && (r.Generation != 2 || r.Failures != 0 || !r.HasState() || r.StateNeeds != "large" ||
						!strings.HasPrefix(r.MoveReason, "it waits for a worker that meets the needs of its state; the deadline is in ")) ||
						!moves && (r.Generation != 1 || r.MoveReason != "") || r.Status != checkpoint.Open {
						t.Errorf("record = %s of generation %d, %d failures, needs %q, moved because %q; want it open with its state, moved: %t",
							r.Status, r.Generation, r.Failures, r.StateNeeds, r.MoveReason, moves)
					}
					if n := b.Sight().Unlike["k"]; moves && n != 0 || b.counter.WithPrefix("started") != 0 {
						t.Errorf("%d wait for a machine, %d starts; want none", n, b.counter.WithPrefix("started"))
					}
				}, set)
			})
		}
	}
}

// TestUnmetNeedsStay: a job that waits for another machine stays on its queue if its deadline is far off or too near, or workers
// do not move jobs for their deadlines.
func TestUnmetNeedsStay(t *testing.T) {
	for name, row := range map[string]struct{ changeover, due time.Duration }{
		"far off":            {10 * time.Minute, 300 * time.Minute},
		"too near":           {10 * time.Minute, 14 * time.Minute},
		"no moves":           {0, 30 * time.Minute},
		"no on-demand queue": {10 * time.Minute, 45 * time.Minute},
		"is there":           {10 * time.Minute, 45 * time.Minute},
		"moves one":          {10 * time.Minute, 45 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"k": picky{"small"}}, func(t *testing.T, b *bench) {
				b.write(b.regular("vm_1-boot-1", "large"))
				b.putDue("a", row.due)
				time.Sleep(2 * time.Second)
				b.runOne()
				if moved := b.onDemand() == 1; moved != (name == "moves one") || b.Record("a").MoveReason != "" != moved {
					t.Errorf("moved: %t", moved)
				}
			}, func(b *bench) {
				b.config.Changeover = row.changeover
				switch stores := b.config.Stores; name {
				case "no on-demand queue":
					stores.OnDemand = nil
				case "is there":
					stores.OnDemand = stores.Queue
				}
			})
		})
	}
}

// TestUnmetNeedsAfterTheMatchIsGone: a job that waited for a day is not dead-lettered when the last worker goes that met the
// needs of its state: it waits a day more for the next one. A worker that offers the machine, but does not have it, does not count.
func TestUnmetNeedsAfterTheMatchIsGone(t *testing.T) {
	proof.Only(t, "it simulates days")
	for name, row := range map[string]struct {
		offers, queue, here string
		waits               time.Duration
	}{
		"the machine":            {"large", "", "small", 48 * time.Hour},
		"another machine":        {"small", "", "small", 24 * time.Hour},
		"of another queue":       {"large", "other", "small", 24 * time.Hour},
		"another program on it":  {"large x", "", "large y", 24 * time.Hour},
		"this machine all along": {"tiny", "", "tiny", 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"k": worded{picky{row.here}}}, func(t *testing.T, b *bench) {
				released := time.Now()
				b.putOpen("a", "k", checkpoint.Snapshot{State: []byte("s"), Needs: "large z"})
				p := b.other()
				p.Offers = []string{presence.OfferFor(row.offers)}
				if row.queue != "" {
					p.TakesFrom = []string{row.queue}
				}
				busy := b.keepAlive(p)
				time.Sleep(24*time.Hour - time.Minute)
				busy()
				p.State = "stopped"
				b.write(p)
				time.Sleep(2 * time.Minute)
				b.untilEnd(30*time.Hour, 2*time.Minute)
				r, waited := b.Record("a"), time.Since(released)
				if r.Status != checkpoint.Poison || waited < row.waits-2*time.Minute || waited > row.waits+8*time.Minute {
					t.Errorf("record = %s after %s, want it poison after %s", r.Status, waited, row.waits)
				}
			})
		})
	}
}

// worded is picky, and offers the first word of its machine.
type worded struct{ picky }

func (w worded) Offer() string { return presence.OfferFor(w.machine) }
