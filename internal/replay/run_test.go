package replay

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/test/property"
)

// replayed runs a scenario that differs from the default one.
func replayed(t testing.TB, change func(*Scenario)) *Report {
	t.Helper()
	s := Default()
	change(&s)
	r, err := Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRunAccountsForAllTime: in scenarios drawn at random, work that counts is the work of
// the jobs that are done and of runs that were cut off, every hour paid for has a use, and
// the same scenario has the same result.
func TestRunAccountsForAllTime(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		s := Default()
		s.Fleet.Lives = rapid.SampledFrom(Sources()).Draw(t, "lives")
		s.Fleet.VMs = rapid.IntRange(1, 12).Draw(t, "vms")
		s.Fleet.Slots = rapid.IntRange(1, 3).Draw(t, "slots")
		s.Fleet.Rate = rapid.SampledFrom([]float64{0.05, 1, 10}).Draw(t, "rate")
		s.Fleet.Full = rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "noticed")
		s.Fleet.Short = (1 - s.Fleet.Full) * rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "short")
		s.Work.Jobs = rapid.SampledFrom([]int{0, 1, 7, 40}).Draw(t, "jobs")
		s.Work.Length.Duration = rapid.SampledFrom([]time.Duration{10 * time.Second, 10 * time.Minute, 3 * hour}).Draw(t, "length")
		s.Work.Save.Duration = rapid.SampledFrom([]time.Duration{0, 20 * time.Millisecond, time.Second, 10 * time.Second,
			time.Minute}).Draw(t, "save")
		s.Work.States.Duration = rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute, 4 * hour}).Draw(t, "states")
		s.Work.NoLast, s.Work.Beside = rapid.Bool().Draw(t, "no last state"), rapid.Bool().Draw(t, "works while saved")
		s.Work.Stop.Duration = rapid.SampledFrom([]time.Duration{0, time.Second, 20 * time.Second}).Draw(t, "stop")
		s.Policy.Interval.Duration = rapid.SampledFrom([]time.Duration{0, 5 * time.Second, time.Minute, 10 * time.Minute}).Draw(t, "interval")
		s.Policy.Never = s.Policy.Interval.Duration == 0 && rapid.Bool().Draw(t, "never")
		s.Policy.Deaf, s.Policy.Hold = rapid.Bool().Draw(t, "deaf"), rapid.Bool().Draw(t, "hold")
		s.Fleet.Fixed = rapid.IntRange(0, 2).Draw(t, "regular")
		if s.Fleet.Fixed > 0 {
			s.Policy.MoveAfter = rapid.IntRange(0, 2).Draw(t, "move")
		}
		s.For.Duration = rapid.SampledFrom([]time.Duration{5 * time.Minute, 2 * hour}).Draw(t, "for")
		s.Seed = rapid.Uint64().Draw(t, "seed")
		r, err := Run(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		recorded := time.Duration(0)
		for _, task := range r.Picture.tasks {
			recorded += task.recorded
			if task.done > 0 && task.recorded != s.Work.Length.Duration {
				t.Fatalf("a job is done with %s of %s of its work", task.recorded, s.Work.Length)
			}
			if task.done == 0 && r.Done < r.Jobs && task.recorded > s.Work.Length.Duration {
				t.Fatalf("a job has %s of work recorded", task.recorded)
			}
		}
		if math.Abs(recorded.Hours()-r.Hours.Useful) > 1e-6 {
			t.Fatalf("useful %.6f h, the jobs have %.6f h recorded", r.Hours.Useful, recorded.Hours())
		}
		h := r.Hours
		for name, hours := range map[string]float64{
			"useful": h.Useful, "saving": h.Saving, "redone": h.Redone, "starting": h.Starting, "booting": h.Booting, "leaving": h.Leaving,
			"idle": h.Idle,
		} {
			if hours < -1e-6 {
				t.Fatalf("%s is %.6f h", name, hours)
			}
		}
		for _, a := range r.Picture.attempts {
			if a.to < a.from || a.works < a.from || a.kept < 0 || a.redone < 0 || a.kept+a.redone > a.to-a.works {
				t.Fatalf("attempt %+v", a)
			}
		}
		again, err := Run(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		if first, second := encoded(t, r), encoded(t, again); first != second {
			t.Fatalf("replayed twice:\n%s\n%s", first, second)
		}
	})
}

func encoded(t interface{ Fatal(...any) }, r *Report) string {
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestNoSlotRunsTwoJobs: at no moment a VM runs more jobs than it has slots, or runs a job
// before its boot or after its end.
func TestNoSlotRunsTwoJobs(t *testing.T) {
	r := replayed(t, func(s *Scenario) {
		s.Fleet.VMs, s.Fleet.Slots, s.Fleet.Rate, s.Work.Jobs, s.Work.Length.Duration = 5, 2, 2, 60, 30*time.Minute
	})
	if r.Done != r.Jobs {
		t.Fatalf("%d of %d jobs are done", r.Done, r.Jobs)
	}
	for _, a := range r.Picture.attempts {
		at, inside := 0, false
		for _, b := range r.Picture.attempts {
			if b.lane == a.lane && b.from <= a.from && a.from < b.to {
				at++
			}
		}
		for _, l := range r.Picture.lanes[a.lane] {
			inside = inside || l.ready <= a.from && a.to <= l.end
		}
		if at > 2 || !inside {
			t.Errorf("%d jobs at once on lane %d at %s, within a life: %t", at, a.lane, a.from, inside)
		}
	}
}

// TestReleasedRunFirst: a job that is released runs again before a backlog, of which one in four claims
// is left to the others.
func TestReleasedRunFirst(t *testing.T) {
	r := replayed(t, func(s *Scenario) {
		s.Fleet.VMs, s.Fleet.Rate, s.Fleet.Full, s.Work.Jobs, s.Work.Length.Duration = 4, 20, 1, 1000, time.Minute
	})
	if r.Done != r.Jobs || r.Warned.Runs < 20 || r.Warned.Mean > 120 {
		t.Errorf("%d of %d jobs are done; %d were released and ran again after %.1f s on average, want 120 at most: the backlog takes hours",
			r.Done, r.Jobs, r.Warned.Runs, r.Warned.Mean)
	}
	p, order := pool{first: []int{1, 2, 3, 4, 5}, waiting: []int{6, 7, 8}}, []int(nil)
	for n, ok := p.take(); ok; n, ok = p.take() {
		order = append(order, n)
	}
	if want := []int{1, 2, 3, 6, 4, 5, 7, 8}; !slices.Equal(order, want) {
		t.Errorf("claimed in the order %v, want %v", order, want)
	}
}

// TestFigures holds the figures of docs/lab.md.
func TestFigures(t *testing.T) {
	often := func(full float64) *Report {
		return replayed(t, func(s *Scenario) {
			s.Fleet.VMs, s.Fleet.Rate, s.Fleet.Full, s.Work.Save.Duration, s.Work.Restore.Duration, s.Work.Load = 100, 5, full,
				20*time.Millisecond, 0, 0.7
		})
	}
	sudden, noticed := often(0), often(0.9)
	t.Logf("5 evictions an hour, a save of 20 ms: goodput %.2f %% without a notice, %.2f %% with 90 %% noticed", sudden.Hours.Goodput(),
		noticed.Hours.Goodput())
	t.Logf("ran again after %.2f s (noticed), %.2f s (sudden)", noticed.Warned.Mean, sudden.Sudden.Mean)
	if sudden.Hours.Goodput() < 99 || noticed.Hours.Goodput() < 99.7 || noticed.Warned.Redone != 0 {
		t.Errorf("goodput %.2f %% and %.2f %%, redone after a notice %.2f s; want 99, 99.7 and 0", sudden.Hours.Goodput(),
			noticed.Hours.Goodput(), noticed.Warned.Redone)
	}
	if noticed.Warned.Mean > 2 || sudden.Sudden.Mean > 26 || sudden.Sudden.Hidden < 24 {
		t.Errorf("ran again after %.2f s (noticed) and %.2f s (sudden), want at most 2 and 26", noticed.Warned.Mean, sudden.Sudden.Mean)
	}
}

// TestAdaptiveIsNearTheBest: for all lives and costs of a save, the adaptive policy is within
// one point of the best fixed interval, and no fixed interval is.
func TestAdaptiveIsNearTheBest(t *testing.T) {
	const s, m = time.Second, time.Minute
	fixed := []time.Duration{10 * s, 15 * s, 20 * s, 30 * s, 45 * s, m, 90 * s, 2 * m, 3 * m, 4 * m, 6 * m, 8 * m, 10 * m}
	fails := map[time.Duration]int{}
	for _, source := range Sources() {
		for _, cost := range []time.Duration{20 * time.Millisecond, time.Second, 10 * time.Second} {
			goodput := func(interval time.Duration) float64 {
				return replayed(t, func(s *Scenario) {
					s.Fleet.Lives, s.Fleet.Full, s.Fleet.Rate, s.Fleet.VMs = source, 0, 0.5, 20
					s.Work.Save.Duration, s.Work.Length.Duration, s.For.Duration = cost, 6*hour, 10*hour
					s.Policy.Interval.Duration = interval
				}).Hours.Goodput()
			}
			adaptive, best, at, all := goodput(0), 0.0, time.Duration(0), map[time.Duration]float64{}
			for _, interval := range fixed {
				if all[interval] = goodput(interval); all[interval] > best {
					best, at = all[interval], interval
				}
			}
			for _, interval := range fixed {
				if all[interval] < best-1 {
					fails[interval]++
				}
			}
			t.Logf("%-8s %5s: adaptive %.2f %%, every 10 s %.2f %%, 1 min %.2f %%, 10 min %.2f %%, the best of %d is %s with %.2f %%", source,
				cost, adaptive, all[10*s], all[m], all[10*m], len(fixed), Brief(at), best)
			if adaptive < best-1 {
				t.Errorf("%s, a save of %s: goodput %.2f %%, want within a point of %.2f %%", source, cost, adaptive, best)
			}
		}
	}
	for _, interval := range fixed {
		if fails[interval] == 0 {
			t.Errorf("every %s is within a point of the best everywhere: the adaptive policy has no use", interval)
		}
	}
}

// TestRunEnds: a replay ends when it is asked to.
func TestRunEnds(t *testing.T) {
	stop := errors.New("asked to end")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if _, err := Run(ctx, Default()); !errors.Is(err, stop) {
		t.Errorf("error = %v, want %v", err, stop)
	}
}

// TestCompareSeesTheSame: all policies see the same lives, and each choice differs.
func TestCompareSeesTheSame(t *testing.T) {
	s := Default()
	s.Fleet.Rate, s.Fleet.Full = 1, 0.5
	choices := Choices(s)
	reports, err := Compare(t.Context(), s, choices)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]*Report{}
	for i, c := range choices {
		if by[c.Name] != nil {
			t.Errorf("two choices are called %q", c.Name)
		}
		by[c.Name] = reports[i]
		if got := reports[i].VMs - c.Fixed; got != reports[0].VMs-choices[0].Fixed {
			t.Errorf("%s: %d VMs lived, want the same as for the others", c.Name, got)
		}
	}
	if len(choices) != 9 || by["adaptive"].Hours.Goodput() <= by["no checkpoints"].Hours.Goodput() ||
		by["adaptive, no notices"].Warned.Runs != 0 || by["adaptive, visibility 10m"].Sudden.Mean < 400 ||
		by["adaptive, no release"].Warned.Hidden < 10 || by["adaptive"].Warned.Hidden > 1 {
		t.Errorf("%d choices: %v", len(choices), by)
	}
	s.Policy.Visibility.Duration = time.Minute
	if n := len(Choices(s)); n != 10 {
		t.Errorf("%d choices beside a visibility of a minute, want those with 30 s and 10 min, too", n)
	}
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 35 * time.Millisecond: "35ms", 4250 * time.Millisecond: "4.3s", 90 * time.Second: "1m30s", 2 * time.Minute: "2m",
		65 * time.Minute: "1h5m", 3 * hour: "3h", 25 * hour: "1d1h", 168 * hour: "7d", -time.Second: "-1s",
	} {
		if got := Brief(d); got != want {
			t.Errorf("Brief(%s) = %s, want %s", d, got, want)
		}
	}
}
