package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
	"github.com/spotworker/spotworker/job"
)

// tracedSteps is a handler that keeps its own trace of the work that it did, by which the
// ledger is judged.
type tracedSteps struct {
	mu   sync.Mutex
	runs map[string][]trace   // by job
	dead map[string]time.Time // when VMs were killed
}

// handler returns the handler of one VM's worker. The payload is the length of each of the
// job's steps, in milliseconds.
func (s *tracedSteps) handler(vm string) job.Handler {
	return job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		run := trace{Began: time.Now()}
		defer func() { s.keep(j.ID, vm, run) }()
		var lengths []int
		if err := json.Unmarshal(j.Payload, &lengths); err != nil {
			return nil, err
		}
		if state, _, ok := j.Saved(); ok {
			if _, err := fmt.Sscan(string(state), &run.From); err != nil {
				return nil, err
			}
		}
		for i := run.From; i < len(lengths); i++ {
			if !rig.SleepFor(ctx, time.Duration(lengths[i])*time.Millisecond) {
				return nil, ctx.Err()
			}
			run.Steps = append(run.Steps, time.Now())
			j.Report(job.Progress{State: fmt.Append(nil, i+1), Fraction: float64(i+1) / float64(len(lengths))})
		}
		run.Finished = true
		return []byte("done"), nil
	})
}

// keep keeps the trace of a run that has returned. Acts of a process after it was killed
// did not happen.
func (s *tracedSteps) keep(id, vm string, run trace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run.Ended = time.Now()
	if died, ok := s.dead[vm]; ok && died.Before(run.Ended) {
		run.Ended, run.Finished = died, false
		for len(run.Steps) > 0 && run.Steps[len(run.Steps)-1].After(died) {
			run.Steps = run.Steps[:len(run.Steps)-1]
		}
	}
	s.runs[id] = append(s.runs[id], run)
}

// kill kills a VM's worker.
func (s *tracedSteps) kill(p *rig.Process) {
	s.mu.Lock()
	s.dead[p.Host] = time.Now()
	s.mu.Unlock()
	p.Kill()
}

// TestLedgerAddsUp: in a history of evictions and kills the ledgers of all jobs add up to
// the time of their handlers, by the handlers' own traces, within 1 %.
func TestLedgerAddsUp(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	var spent ledger.Ledger
	var did worked
	for seed := range uint64(2) {
		l, w := ledgerOfHistory(t, seed+1, []int{2, 10}[seed%2]) // messages of dead VMs wait, or are claimed at once
		spent.Useful, spent.Redone, spent.Overhead = spent.Useful+l.Useful, spent.Redone+l.Redone, spent.Overhead+l.Overhead
		spent.Evictions, spent.Exits = spent.Evictions+l.Evictions, spent.Exits+l.Exits
		did.add(w)
	}
	off := func(got, want time.Duration) float64 { return 100 * float64(got-want) / float64(want) }
	t.Logf("ledger: %+v", spent)
	t.Logf("handlers ran for %s (%.2f %% off), useful %s (%.2f %% off), lost %s (%.2f %% off)",
		did.Ran, off(spent.Useful+spent.Redone, did.Ran), did.Useful, off(spent.Useful, did.Useful), did.lost(), off(spent.Redone, did.lost()))
	for _, row := range []struct {
		what      string
		got, want time.Duration
		within    float64
	}{
		{"time of handlers", spent.Useful + spent.Redone, did.Ran, 1},
		{"useful time", spent.Useful, did.Useful, 1},
		{"redone time", spent.Redone, did.lost(), 30}, // little, and most of it estimated: messages that wait look like workers that lived on
	} {
		if p := off(row.got, row.want); p > row.within || p < -row.within {
			t.Errorf("%s: %s in the ledgers, %s by the handlers' traces: %.2f %% off, want at most %g %%", row.what, row.got, row.want, p,
				row.within)
		}
	}
	if spent.Evictions == 0 || spent.Exits == 0 {
		t.Errorf("%d evictions and %d unclean exits, want some of each", spent.Evictions, spent.Exits)
	}
}

// ledgerOfHistory lets VMs come and go while jobs are done, and returns the sum of their
// ledgers and of their handlers' traces.
func ledgerOfHistory(t *testing.T, seed uint64, slots int) (spent ledger.Ledger, did worked) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const jobs, vms = 24, 3
		random := rand.New(rand.NewPCG(seed, 22))
		work := &tracedSteps{runs: map[string][]trace{}, dead: map[string]time.Time{}}
		var ids []string
		for i := range jobs {
			lengths := make([]int, 60+random.IntN(120))
			for s := range lengths {
				lengths[s] = 1000 + random.IntN(7000)
			}
			payload, err := json.Marshal(lengths)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, fmt.Sprint("job-", i))
			b.Put(ids[i], "steps", string(payload))
		}
		started := 0
		start := func() *rig.Process {
			started++
			name := fmt.Sprint("vm_", started)
			return b.Start(name, job.Kinds{"steps": work.handler(name)}, func(c *worker.Config) {
				c.Concurrency, c.Policy.Interval = slots, 20*time.Second
			})
		}
		var fleet []*rig.Process
		for range vms {
			fleet = append(fleet, start())
		}
		for b.MessagesLeft() > 0 {
			time.Sleep(time.Duration(random.ExpFloat64() * float64(90*time.Second)))
			i := random.IntN(vms)
			if random.IntN(3) == 0 {
				id, err := b.Metadata.SimulateEviction(fleet[i].Host)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(15 * time.Second)
				b.Metadata.Complete(id)
			}
			work.kill(fleet[i])
			time.Sleep(time.Duration(random.IntN(60)) * time.Second) // until there is another
			fleet[i] = start()
		}
		for _, p := range fleet {
			p.Stop()
		}
		for _, id := range ids {
			r := b.Record(id)
			l := r.Spent()
			if r.Status != checkpoint.Done {
				t.Fatalf("seed %d: job %s is %s with the ledger %+v, want done", seed, id, r.Status, l)
			}
			spent.Useful, spent.Redone, spent.Overhead = spent.Useful+l.Useful, spent.Redone+l.Redone, spent.Overhead+l.Overhead
			spent.Evictions, spent.Exits = spent.Evictions+l.Evictions, spent.Exits+l.Exits
			did.add(measure(work.runs[id]))
		}
	})
	return spent, did
}

// TestLedgerOfDeathWithoutRecord: a first delivery writes its record after 10 s at the latest. A
// VM that dies before leaves no time and no exit in the ledger. A later delivery writes before
// its handler starts, so the ledger has its death, however early.
func TestLedgerOfDeathWithoutRecord(t *testing.T) {
	for name, row := range map[string]struct {
		deaths []time.Duration // after the start of the handler, one for each VM
		exits  int             // in the ledger
		absent time.Duration   // handler time that the ledger does not have
	}{
		"before the first write":     {[]time.Duration{9500 * time.Millisecond}, 0, 9500 * time.Millisecond},
		"after the first write":      {[]time.Duration{12500 * time.Millisecond}, 1, 0},
		"before it, and early again": {[]time.Duration{9500 * time.Millisecond, 500 * time.Millisecond}, 1, 9500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				const id, steps = "short", 30
				work := &tracedSteps{runs: map[string][]trace{}, dead: map[string]time.Time{}}
				payload, err := json.Marshal(slices.Repeat([]int{1000}, steps))
				if err != nil {
					t.Fatal(err)
				}
				b.Put(id, "steps", string(payload))
				for i, life := range append(row.deaths, 0) {
					vm, began := fmt.Sprint("vm_", i), make(chan struct{}, 1)
					p := b.Start(vm, job.Kinds{"steps": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
						began <- struct{}{}
						return work.handler(vm).Run(ctx, j)
					})}, func(c *worker.Config) { c.Policy.Interval = 20 * time.Second })
					<-began
					if life == 0 {
						b.WaitDone(id, time.Hour)
						p.Stop()
						break
					}
					time.Sleep(life)
					work.kill(p)
				}
				l, did := b.Record(id).Spent(), measure(work.runs[id])
				if l.Exits != row.exits {
					t.Errorf("%d deaths in the ledger, want %d of %d", l.Exits, row.exits, len(row.deaths))
				}
				off := l.Useful + l.Redone + row.absent - did.Ran // exact without an estimate
				if row.exits == 0 && off.Abs() > 100*time.Millisecond || row.exits > 0 && l.Redone == 0 {
					t.Errorf("ledger %+v, and %s without a record: handlers ran for %s, %s apart", l, row.absent, did.Ran, off)
				}
			})
		})
	}
}
