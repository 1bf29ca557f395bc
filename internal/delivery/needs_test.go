package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// TestLineOfUnmetNeeds: of several jobs that wait for a machine one is logged, and none if another worker has it. Where this worker
// announces the same machine, and cannot continue, the announcement of another worker proves nothing.
func TestLineOfUnmetNeeds(t *testing.T) {
	const line = "job waits for a worker that meets the needs of its state"
	for name, row := range map[string]struct {
		own     string
		offers  []string // of another worker
		needs   string
		down    bool // heartbeats cannot be listed
		lines   int
		counted int
	}{
		"no other":               {"small", []string{"small"}, "large", false, 1, 3},
		"another meets them":     {"small", []string{"large"}, "large", false, 0, 0},
		"another may meet them":  {"small", nil, "large", false, 1, 0},
		"not known":              {"small", []string{"large"}, "large", true, 1, 0},
		"more than it takes":     {"small", []string{"large+Bw"}, "large+Aw 6.12", false, 0, 0},
		"less than it takes":     {"small", []string{"large+Bw"}, "large+Cw 6.12", false, 1, 3},
		"of another name":        {"small", []string{"small+Bw"}, "large+Aw 6.12", false, 1, 3},
		"another length":         {"small", []string{"large+Bwc"}, "large+Aw 6.12", false, 1, 3},
		"another like this":      {"large", []string{"large"}, "large 6.12", false, 1, 3},
		"another above this":     {"large+Aw", []string{"large+Bw"}, "large+AQ 6.12", false, 1, 3},
		"one that may meet them": {"large", nil, "large 6.12", false, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"k": picky{row.own}}, func(t *testing.T, b *bench) {
				p := b.other()
				p.Offers = row.offers
				defer b.keepAlive(p)()
				for _, id := range []string{"a", "b", "c"} {
					b.putOpen(id, "k", checkpoint.Snapshot{State: []byte("s"), Needs: row.needs})
				}
				if row.down {
					defer b.down(on(b.Names.Workers, storage.OpListBlobs))()
				}
				for range 3 {
					b.runOne()
				}
				if got := b.lines(line); got != row.lines || b.Record("a").Status != checkpoint.Open {
					t.Errorf("%d lines, record %s; want %d, and it open", got, b.Record("a").Status, row.lines)
				}
				if got := b.Sight().Unlike["k"]; got != row.counted {
					t.Errorf("%d jobs are counted as waiting, want %d", got, row.counted)
				}
			})
		})
	}
}

// TestStopAfterADayOfUnmetNeeds: a job that has waited for a machine for a day is not poison if the worker stops before it has acquired
// the record.
func TestStopAfterADayOfUnmetNeeds(t *testing.T) {
	for name, stops := range map[string]bool{"a stop": true, "an outage": false} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"k": picky{"small"}}, func(t *testing.T, b *bench) {
				b.putOpen("a", "k", checkpoint.Snapshot{State: []byte("s"), Needs: "large"})
				time.Sleep(24*time.Hour + time.Second)
				end := b.down(on(b.Names.Records, storage.OpSetBlobMetadata))
				wait := b.begin(b.claim())
				time.Sleep(5 * time.Second)
				if stops {
					b.drainNow(10 * time.Second)
				}
				time.Sleep(2 * time.Second)
				end()
				wait()
				r, poison := b.Record("a"), len(b.PoisonMessages())
				if (r.Status == checkpoint.Open) != stops || (r.Status == checkpoint.Poison) == stops || (poison == 0) != stops ||
					(b.visible() == 1) != stops || b.counter.WithPrefix("started") != 0 || !r.HasState() {
					t.Errorf("record = %s %q, %d poison messages, %d visible; want it open: %t", r.Status, r.Reason, poison, b.visible(), stops)
				}
			})
		})
	}
}

// fallible is picky, and reports a state with needs and fails at its first run.
type fallible struct{ picky }

func (f fallible) Run(_ context.Context, j *job.Job) ([]byte, error) {
	if _, _, resumes := j.Saved(); resumes {
		return nil, nil
	}
	j.Report(job.Progress{State: []byte("s"), Needs: f.machine})
	return nil, errors.New("out of luck")
}

// TestFailedHereLastWithNeeds: a job that failed on this machine last is left to other machines only if one
// of them may meet the needs of its state.
func TestFailedHereLastWithNeeds(t *testing.T) {
	for name, row := range map[string]struct {
		offers []string // of the other worker
		waits  bool
	}{"another machine": {[]string{"small"}, false}, "the same machine": {[]string{"large"}, true}, "not announced": {nil, true}} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"k": fallible{picky{"large"}}}, func(t *testing.T, b *bench) {
				p := b.other()
				p.Offers = row.offers
				defer b.keepAlive(p)()
				b.Put("a", "k", "")
				b.runOne()
				if r := b.Record("a"); r.FailuresTotal != 1 || r.StateNeeds != "large" {
					t.Fatalf("record = %d failures, needs %q; want one, and those of its state", r.FailuresTotal, r.StateNeeds)
				}
				took, _ := b.untilEnd(time.Hour, 10*time.Second)
				if r := b.Record("a"); r.Status != checkpoint.Done || took > 9*time.Minute != row.waits {
					t.Errorf("record = %s after %s, want it done, and after ten minutes: %t", r.Status, took, row.waits)
				}
			})
		})
	}
}

// moody is picky, and fails all jobs while it is unwell.
type moody struct {
	picky
	unwell *atomic.Bool
}

func (m moody) Run(context.Context, *job.Job) ([]byte, error) {
	if m.unwell.Load() {
		return nil, errors.New("out of luck")
	}
	return nil, nil
}

// TestRefusalsAndTheBreaker: jobs that are left to another machine open no circuit breaker, and are no proof that the kind works
// where it is open: the next job that runs decides.
func TestRefusalsAndTheBreaker(t *testing.T) {
	var unwell atomic.Bool
	kind := job.WithLimits(moody{picky{"small"}, &unwell}, job.Limits{MaxFailures: 1})
	onBench(t, job.Kinds{"k": kind}, func(t *testing.T, b *bench) {
		defer b.keepAlive(b.other())() // else the breaker is only a brake
		refuse := func(n int) {
			for i := range n {
				b.putOpen(fmt.Sprintf("frozen-%d-%d", i, time.Now().Unix()), "k", checkpoint.Snapshot{State: []byte("s"), Needs: "large"})
				if got := b.runOne(); got != delivery.Unfit {
					t.Fatalf("result = %d, want a refusal", got)
				}
			}
		}
		refuse(8)
		if got := b.counter.WithPrefix("broke"); got != 0 {
			t.Fatalf("the circuit breaker opened %d times, want none", got)
		}
		unwell.Store(true)
		for i := range 5 {
			b.Put(fmt.Sprint("fails-", i), "k", "")
			b.runOne()
		}
		if got := b.counter.WithPrefix("broke"); got != 1 {
			t.Fatalf("the circuit breaker opened %d times after five failures, want once", got)
		}
		time.Sleep(11 * time.Second)
		if most, _ := b.Claimable(32, time.Now()); most != 1 {
			t.Fatalf("%d messages may be claimed after the rest, want one", most)
		}
		refuse(2)
		if most, _ := b.Claimable(32, time.Now()); most != 1 || b.counter.WithPrefix("recovered") != 0 {
			t.Errorf("%d messages may be claimed after refusals, the breaker closed: %t; want one, and it half-open", most,
				b.counter.WithPrefix("recovered") > 0)
		}
		unwell.Store(false)
		b.Put("well", "k", "")
		for b.Record("well").Status != checkpoint.Done && b.visible() > 0 {
			b.runOne()
		}
		if most, _ := b.Claimable(32, time.Now()); most != 32 || b.Record("well").Status != checkpoint.Done {
			t.Errorf("%d messages may be claimed after a job that succeeded, record %s; want all, done", most, b.Record("well").Status)
		}
	})
}
