package client

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
)

// beat writes the heartbeat of worker-1 with running jobs.
func (b *rig) beat(t *testing.T, running ...presence.Running) {
	t.Helper()
	if err := b.stores.Workers.Write(t.Context(), presence.Presence{Worker: "worker-1", State: "process", Running: running}); err != nil {
		t.Fatal(err)
	}
}

// TestLive: the progress of a running job is in its worker's heartbeat, if that is of the
// same claim and newer than the record. A job that is not running costs one call.
func TestLive(t *testing.T) {
	const log = "# 1 2026-03-09T12:00:00.000Z worker-1\n-8\no 9000 nine\no 10000 ten\n"
	run := presence.Running{ID: "a", Generation: 1, RunTime: time.Minute, Ran: time.Minute, Fraction: 0.25, Text: "epoch 3", Log: []byte(log),
		HandOver: 2 * time.Second}
	other := func(change func(*presence.Running)) []presence.Running {
		r := run
		change(&r)
		return []presence.Running{r}
	}
	for name, row := range map[string]struct {
		status  Status
		running []presence.Running // nil for no heartbeat
		older   bool               // the record was written after the heartbeat
		lives   bool
		lines   int
		calls   int64
	}{
		"running":             {StatusRunning, []presence.Running{{ID: "b"}, run}, false, true, 3, 2},
		"older heartbeat":     {StatusRunning, []presence.Running{run}, true, false, 3, 2},
		"no heartbeat":        {StatusRunning, nil, false, false, 0, 2},
		"not in it":           {StatusRunning, []presence.Running{{ID: "b", Generation: 1}}, false, false, 0, 2},
		"of an earlier claim": {StatusRunning, other(func(r *presence.Running) { r.Generation = 0 }), false, false, 0, 2},
		"without a log":       {StatusRunning, other(func(r *presence.Running) { r.Log = nil }), false, true, 0, 2},
		"open":                {StatusOpen, []presence.Running{run}, false, false, 0, 1},
		"done":                {StatusDone, []presence.Running{run}, false, false, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				claim := b.seed(t, "a", row.status)
				time.Sleep(30 * time.Second)
				if row.running != nil {
					b.beat(t, row.running...)
				}
				time.Sleep(5 * time.Second)
				if row.older {
					if err := claim.Touch(t.Context(), checkpoint.Snapshot{Fraction: 0.3}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(2 * time.Second)
				b.server.ResetCounts()
				got, err := b.Live(t.Context(), "a")
				if err != nil {
					t.Fatal(err)
				}
				if calls := b.counted(); calls != row.calls {
					t.Errorf("Live took %d calls, want %d", calls, row.calls)
				}
				if len(got.Lines) != row.lines || row.lines > 0 && (got.Lines[0].LeftOut != 8 || got.Lines[2].Text != "ten") {
					t.Errorf("lines = %+v, want %d", got.Lines, row.lines)
				}
				want := time.Duration(0) // also where the record is newer
				if row.lives || row.older {
					want = run.HandOver
				}
				if got.Job.HandOver != want {
					t.Errorf("hand-over = %s, want %s", got.Job.HandOver, want)
				}
				live := got.Job.Live
				if (live != nil) != row.lives {
					t.Fatalf("Live = %+v, want some: %t", live, row.lives)
				}
				if live == nil {
					return
				}
				if want := (Live{Age: 7 * time.Second, Fraction: 0.25, Text: "epoch 3", RunTime: time.Minute, Ran: time.Minute}); *live != want {
					t.Errorf("Live = %+v, want %+v", *live, want)
				}
				if left, ok := got.Job.TimeLeft(); !ok || left != 173*time.Second {
					t.Errorf("time left = %s, %t, want 3 min less the age of the heartbeat", left, ok)
				}
				if got.Job.Fraction != 0 {
					t.Errorf("fraction of the record = %g, want the recorded one", got.Job.Fraction)
				}
			})
		})
	}
}

// TestLiveOfNoJob: without a record there is nothing to ask a worker for.
func TestLiveOfNoJob(t *testing.T) {
	b := setup(t)
	if _, err := b.Live(t.Context(), "nope"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Live = %v, want ErrNotFound", err)
	}
}

// TestLiveUnreadable: the record of a job is shown even if its worker's heartbeat cannot be
// read.
func TestLiveUnreadable(t *testing.T) {
	b := setup(t)
	b.seed(t, "a", StatusRunning)
	if _, err := b.stores.Account.Container(b.stores.Names.Workers).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	got, err := b.Live(t.Context(), "a")
	if err != nil || got.Job.Status != StatusRunning || got.Job.Live != nil {
		t.Errorf("Live = %+v, %v, want the record alone", got, err)
	}
}

// TestReadLive reads one heartbeat for each worker, and no more of them than asked for.
func TestReadLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		for _, id := range []string{"a", "b", "c"} {
			b.seed(t, id, StatusRunning)
		}
		b.seed(t, "done", StatusDone)
		time.Sleep(time.Minute)
		b.beat(t, presence.Running{ID: "a", Generation: 1, Fraction: 0.1}, presence.Running{ID: "b", Generation: 1, Fraction: 0.2})
		read := func() (jobs []Job) {
			for j, err := range b.List(t.Context(), Filter{}) {
				if err != nil {
					t.Fatal(err)
				}
				jobs = append(jobs, j)
			}
			slices.SortFunc(jobs, func(x, y Job) int { return int(x.ID[0]) - int(y.ID[0]) })
			jobs[2].Owner = "worker-2" // which has no heartbeat
			return jobs
		}
		for _, row := range []struct {
			workers int
			lives   int
			calls   int64
		}{{0, 0, 0}, {-1, 0, 0}, {1, 2, 1}, {16, 2, 2}} {
			jobs := read()
			b.server.ResetCounts()
			b.ReadLive(t.Context(), jobs, row.workers)
			lives := 0
			for _, j := range jobs {
				if j.Live != nil {
					lives++
				}
			}
			if calls := b.counted(); calls != row.calls || lives != row.lives {
				t.Errorf("of %d workers: %d jobs in %d calls, want %d in %d", row.workers, lives, calls, row.lives, row.calls)
			}
		}
		jobs := read()
		b.ReadLive(t.Context(), jobs, 1)
		if jobs[1].Live == nil || jobs[1].Live.Fraction != 0.2 || jobs[3].Live != nil {
			t.Errorf("live of b = %+v, of done = %+v", jobs[1].Live, jobs[3].Live)
		}
	})
}

// counted returns how many calls the service answered since its counts were reset.
func (b *rig) counted() (n int64) {
	for _, count := range b.server.Counts() {
		n += count
	}
	return n
}
