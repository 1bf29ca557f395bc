package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// other returns the heartbeat of a worker on another machine that runs jobs of kind k.
func (b *bench) other() presence.Presence {
	return presence.Presence{Worker: "vm_1-boot-1", State: "process", Kinds: []string{"k"}, TakesFrom: []string{b.Names.Queue}}
}

// progress makes another worker acquire the job, and release it with a state.
func (b *bench) progress(id string) {
	b.T.Helper()
	found := b.Record(id)
	d := checkpoint.Delivery{ID: id, Kind: "k", PayloadHash: found.PayloadHash, MessageID: found.MessageID}
	c, err := b.Records.Acquire(b.T.Context(), d, found, "vm_1-boot-1")
	if err == nil {
		err = c.Release(b.T.Context(), checkpoint.Snapshot{State: []byte("s")})
	}
	if err != nil {
		b.T.Fatal(err)
	}
}

// TestFailedHereLast: a job that failed on this machine last is left to other machines for ten minutes, unless there is none,
// or another job of its kind has succeeded here since, or the job made progress elsewhere.
func TestFailedHereLast(t *testing.T) {
	leaves, runs := [2]time.Duration{10 * time.Minute, 14 * time.Minute}, [2]time.Duration{10 * time.Second, 20 * time.Second}
	nothing := func(*bench) {}
	worked := func(b *bench) { // another job here
		time.Sleep(2 * time.Second)
		b.Put("b", "k", "")
		b.runOne()
	}
	progressed := func(b *bench) { b.progress("a") }
	for name, row := range map[string]struct {
		change func(b *bench, p *presence.Presence) // nil: no other worker
		since  func(b *bench)
		lists  time.Duration // how long a listing of the heartbeats takes
		within [2]time.Duration
	}{
		"others":                     {func(*bench, *presence.Presence) {}, nothing, 0, leaves},
		"no others":                  {nil, nothing, 0, runs},
		"no others, by a slow list":  {nil, nothing, 1900 * time.Millisecond, runs},
		"no list within two seconds": {nil, nothing, 2100 * time.Millisecond, leaves},
		"others, and it works":       {func(*bench, *presence.Presence) {}, worked, 0, runs},
		"others, and it works within the precision of the record's time": {
			func(*bench, *presence.Presence) { time.Sleep(900 * time.Millisecond) },
			func(b *bench) {
				time.Sleep(150 * time.Millisecond)
				b.Put("b", "k", "")
				b.runOne()
				time.Sleep(50 * time.Millisecond)
			}, 0, leaves,
		},
		"others, and progress":   {func(*bench, *presence.Presence) {}, progressed, 0, runs},
		"all kinds":              {func(_ *bench, p *presence.Presence) { p.Kinds = nil }, nothing, 0, leaves},
		"all queues":             {func(_ *bench, p *presence.Presence) { p.TakesFrom = nil }, nothing, 0, leaves},
		"in a drain":             {func(_ *bench, p *presence.Presence) { p.State = "shutdown" }, nothing, 0, leaves},
		"another kind":           {func(_ *bench, p *presence.Presence) { p.Kinds = []string{"other"} }, nothing, 0, runs},
		"another queue":          {func(b *bench, p *presence.Presence) { p.TakesFrom = []string{b.Names.OnDemand} }, nothing, 0, runs},
		"stopped":                {func(_ *bench, p *presence.Presence) { p.State = "stopped" }, nothing, 0, runs},
		"silent for two minutes": {func(*bench, *presence.Presence) {}, nothing, 0, [2]time.Duration{20 * time.Second, 40 * time.Second}},
		"the same machine":       {func(_ *bench, p *presence.Presence) { p.Worker = "vm_0-boot-2" }, nothing, 0, runs},
	} {
		t.Run(name, func(t *testing.T) {
			fails := true
			run := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
				if fails && j.ID == "a" {
					fails = false
					return nil, errors.New("out of luck")
				}
				return nil, nil
			})
			onBench(t, job.Kinds{"k": run}, func(t *testing.T, b *bench) {
				if row.change != nil {
					p := b.other()
					row.change(b, &p)
					if name == "silent for two minutes" {
						if err := b.Workers.Write(t.Context(), p); err != nil {
							t.Fatal(err)
						}
						time.Sleep(100 * time.Second)
					} else {
						defer b.keepAlive(p)()
					}
				}
				b.delay(row.lists, on(b.Names.Workers, storage.OpListBlobs))
				b.Put("a", "k", "")
				b.runOne()
				if r := b.Record("a"); r.FailuresTotal != 1 || r.FailedBy != "vm_0-boot" {
					t.Fatalf("record = %d failures, the last on %q; want one on vm_0-boot", r.FailuresTotal, r.FailedBy)
				}
				row.since(b)
				took, _ := b.untilEnd(time.Hour, 10*time.Second)
				r := b.Record("a")
				if took < row.within[0]-3*time.Second || took > row.within[1] || r.Status != checkpoint.Done || r.FailuresTotal != 1 {
					t.Errorf("record = %s after %s and %d failures, want it done within %s", r.Status, took, r.FailuresTotal, row.within)
				}
			})
		})
	}
}

// TestEndWithoutAFailure: a job that failed on this machine last asks for other machines only if it fails again, or takes a break.
func TestEndWithoutAFailure(t *testing.T) {
	for name, row := range map[string]struct {
		err    error
		drain  bool
		status checkpoint.Status
		lists  int
	}{
		"done":         {nil, false, checkpoint.Done, 0},
		"a break":      {job.Interrupted(errors.New("wait")), false, checkpoint.Open, 1},
		"a drain":      {nil, true, checkpoint.Open, 0},
		"fails, drain": {errors.New("out of luck"), true, checkpoint.Open, 0},
		"fails":        {errors.New("out of luck"), false, checkpoint.Open, 1},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			kinds := handle(func(ctx context.Context, _ *job.Job) ([]byte, error) {
				if runs++; runs == 1 {
					return nil, errors.New("out of luck")
				}
				return nil, errors.Join(sleeps(ctx, 2*time.Minute), row.err)
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				b.runOne()
				b.WaitFor("the message", time.Minute, func() bool { return b.visible() == 1 })
				wait := b.begin(b.claim())
				time.Sleep(time.Minute) // the last listing is old by then
				before := b.counted(storage.OpListBlobs)
				if row.drain {
					b.drainNow(10 * time.Second)
				}
				wait()
				r, lists := b.Record("a"), b.counted(storage.OpListBlobs)-before
				if r.Status != row.status || runs != 2 || lists != row.lists {
					t.Errorf("record = %s after %d runs and %d listings, want %s after 2 and %d", r.Status, runs, lists, row.status, row.lists)
				}
			})
		})
	}
}

// TestFailedThereLast: jobs that failed on another machine last do not open the circuit breaker when they fail here too;
// others do, and jobs that made progress since.
func TestFailedThereLast(t *testing.T) {
	for name, row := range map[string]struct {
		by         string
		progressed bool
		broke      int
	}{
		"none": {"", false, 1}, "elsewhere": {"vm_9-boot", false, 0}, "elsewhere, with progress since": {"vm_9-boot", true, 1},
		"here": {"vm_0-boot", false, 1}, "unknown": {unknownMachine, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(context.Context, *job.Job) ([]byte, error) { return nil, errors.New("out of luck") })
			onBench(t, kinds, func(t *testing.T, b *bench) {
				defer b.keepAlive(b.other())()
				for i := range 5 {
					id := fmt.Sprint("job-", i)
					if b.putFailed(id, row.by); row.progressed {
						b.progress(id)
					}
				}
				time.Sleep(10 * time.Minute) // by then a job that failed here last is no longer left to others
				for range 5 {
					b.runOne()
				}
				if got := b.counter.WithPrefix("broke"); got != row.broke || b.counter.WithPrefix("failed") != 5 {
					t.Errorf("the circuit breaker opened %d times after %d failures, want %d after 5", got, b.counter.WithPrefix("failed"), row.broke)
				}
			})
		})
	}
}

// TestFailedTwiceInARow: two failures in a row count as one if both were on this machine, and another machine could run
// the job.
func TestFailedTwiceInARow(t *testing.T) {
	for name, row := range map[string]struct {
		before string // the machine of the first failure
		others bool
		want   int // failures in a row
	}{
		"both here":             {"vm_0-boot", true, 1},
		"both here, no others":  {"vm_0-boot", false, 2},
		"the first on another":  {"vm_1-boot", true, 2},
		"the first is unknown":  {unknownMachine, true, 2},
		"another, and no other": {"vm_1-boot", false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(context.Context, *job.Job) ([]byte, error) { return nil, errors.New("out of luck") })
			onBench(t, kinds, func(t *testing.T, b *bench) {
				if row.others {
					defer b.keepAlive(b.other())()
				}
				b.putFailed("a", row.before)
				time.Sleep(10 * time.Minute) // by then a job that failed here last is no longer left to others
				b.runOne()
				if r := b.Record("a"); r.FailuresTotal != 2 || r.Failures != row.want || r.FailedBy != "vm_0-boot" {
					t.Errorf("record = %d failures, %d in a row, the last on %q; want 2, %d, on vm_0-boot", r.FailuresTotal, r.Failures,
						r.FailedBy, row.want)
				}
			})
		})
	}
}

// unknownMachine stands for the machine of a failure that a worker recorded which did not know that fact yet.
const unknownMachine = "unknown"

// putFailed enqueues a job that failed once on a machine; on none if that is empty.
func (b *bench) putFailed(id, machine string) {
	b.T.Helper()
	e := queue.Envelope{ID: id, Kind: "k", Resume: true}
	if machine != "" {
		c := b.Records.Fresh(former(e), machine+"-1")
		c.SetFacts(func(f checkpoint.Facts) checkpoint.Facts {
			if machine != unknownMachine {
				f.Failure.Machine = machine
			}
			return f
		})
		if err := c.Fail(b.T.Context(), checkpoint.Snapshot{}, "out of luck"); err != nil {
			b.T.Fatal(err)
		}
	}
	b.put(e)
}
