package costs

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview/spent"
)

// fakeDeployment has the jobs that it yields.
type fakeDeployment struct {
	jobs    iter.Seq2[client.Job, error]
	workers []client.Worker
}

func (d fakeDeployment) List(context.Context, client.Filter) iter.Seq2[client.Job, error] {
	return d.jobs
}
func (d fakeDeployment) Workers(context.Context) ([]client.Worker, error) { return d.workers, nil }

// run runs the command over a deployment, and returns its output.
func run(t *testing.T, c Cost, d fakeDeployment) (lines, notes []string) {
	t.Helper()
	if c.By == nil {
		c.By = []string{"day", "kind"}
	}
	s := Session{Output: Output{
		Lines: func(printed []string) error { lines = append(lines, printed...); return nil },
		Note:  func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) },
	}}
	if err := c.Run(t.Context(), s, func() (Deployment, error) { return d, nil }); err != nil {
		t.Fatal(err)
	}
	return lines, notes
}

func jobs(all ...client.Job) iter.Seq2[client.Job, error] {
	return func(yield func(client.Job, error) bool) {
		for _, j := range all {
			if !yield(j, nil) {
				return
			}
		}
	}
}

var evening = time.Date(2026, 11, 1, 23, 59, 0, 0, time.UTC)

// TestUnknownCosts: records of newer versions are counted and named, and jobs that no worker had are
// left out.
func TestUnknownCosts(t *testing.T) {
	known := client.Cost{Useful: time.Hour}
	lines, notes := run(t, Cost{}, fakeDeployment{jobs: jobs(
		client.Job{Kind: "k", Status: client.StatusDone, Deliveries: 1, UpdatedAt: evening, Cost: known},
		client.Job{Kind: "k", Status: client.StatusDone, Deliveries: 2, UpdatedAt: evening, Cost: known},
		client.Job{Status: client.StatusCancelled, UpdatedAt: evening},
		client.Job{Status: client.StatusUnknown, UpdatedAt: evening},
	)})
	for i, want := range []string{"DAY", "2026-11-01  k        2    2.00  100.0 %"} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d = %q, want %q", i, lines[i], want)
		}
	}
	want := []string{
		"not readable by this version, and not in the sums: 1 records",
	}
	if !slices.Equal(notes, want) {
		t.Errorf("notes = %q, want %q", notes, want)
	}
}

// TestSlotsOfVMs: the workers of one VM add up, and only live ones count.
func TestSlotsOfVMs(t *testing.T) {
	hour := jobs(client.Job{Kind: "k", Deliveries: 2, UpdatedAt: evening, Cost: client.Cost{Useful: time.Hour,
		Overhead: time.Hour}})
	live := func(name, vm string, slots int) client.Worker {
		return client.Worker{Name: name, VM: vm, State: "process", Activity: &client.Activity{Slots: slots}, Age: time.Second}
	}
	gone := live("c", "vm_3", 50)
	gone.Age = time.Hour
	for _, row := range []struct {
		workers []client.Worker
		cost    string // of 2 slot-hours at 12, and of 1.5 at 48
		notes   int
	}{
		{[]client.Worker{live("a-0", "vm_1", 2), live("a-1", "vm_1", 2), live("b", "vm_2", 4), gone}, " 6.00    18.00  66.7 %", 1},
		{[]client.Worker{live("a", "vm_1", 2), live("b", "vm_2", 4)}, " 8.00    24.00  66.7 %", 2},
	} {
		lines, notes := run(t, Cost{Rates: Rates{SpotPrice: 12, RegularPrice: 48}}, fakeDeployment{jobs: hour, workers: row.workers})
		if !strings.HasSuffix(lines[1], row.cost) || len(notes) != row.notes {
			t.Errorf("%d workers: %q, notes %q, want %q and %d notes", len(row.workers), lines[1], notes, row.cost, row.notes)
		}
	}
}

// TestMemoryIsFlat: 200,000 jobs of ever new kinds take less than a MiB.
func TestMemoryIsFlat(t *testing.T) {
	many := func(yield func(client.Job, error) bool) {
		for i := range 200_000 {
			if !yield(client.Job{Kind: fmt.Sprint("kind-", i), Deliveries: 1, UpdatedAt: evening,
				Cost: client.Cost{Useful: time.Second}}, nil) {
				return
			}
		}
	}
	c := Cost{By: []string{"kind"}}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s, err := c.sum(t.Context(), fakeDeployment{jobs: many}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if len(s.Rows) != spent.MostKinds+1 || s.Rows[spent.Group{Kind: spent.OtherKinds}].Jobs != 200_000-spent.MostKinds {
		t.Errorf("%d rows, want %d and one for the rest", len(s.Rows), spent.MostKinds)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("the sums of 200,000 jobs take %d bytes, want less than a MiB", grown)
	}
	runtime.KeepAlive(s)
}
