package activity

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMeter: what happened stays for ten minutes and then drops out.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMeter(4)
		pass := func(d time.Duration) { // with a report as often as a heartbeat is written
			for end := time.Now().Add(d); time.Now().Before(end); {
				time.Sleep(15 * time.Second)
				m.Report()
			}
		}
		m.Slots().Work(true)
		m.Slots().Change(2, 1)
		time.Sleep(time.Minute)
		m.Committed("render", 20*time.Second)
		m.Spent("render", committed, 15*time.Second)
		m.Spent("render", handedOver, 5*time.Second)
		m.Failed("digest")
		m.Spent("digest", failed, time.Second)
		m.Spent("digest", redone, 2*time.Second)
		m.Slots().Change(-2, -1)
		m.Slots().Work(false)
		pass(5 * time.Minute)
		m.Committed("render", time.Minute)
		got := m.Report()
		want := Report{
			Slots: 4, Times: Times{Handler: time.Minute, Around: time.Minute, Idle: 2 * time.Minute, Closed: 20 * time.Minute},
			Kinds: []Kind{
				{Name: "digest", Failed: 1, Efforts: Efforts{Failed: time.Second, Redone: 2 * time.Second}},
				{Name: "render", Done: 2, Efforts: Efforts{Committed: 15 * time.Second, HandedOver: 5 * time.Second},
					Durations: Histogram{{58, 1}, {64, 1}}},
			},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("report (-want +got)\n%s", diff)
		}
		pass(5 * time.Minute)
		if got := m.Report(); len(got.Kinds) != 1 || got.Kinds[0].Done != 1 || got.Times.Handler != 0 || got.Times.Total() != 4*9*time.Minute {
			t.Errorf("after ten minutes: %+v, want the last job alone, and nine full minutes of slots", got)
		}
		pass(time.Hour)
		if got := m.Report(); len(got.Kinds) != 0 || got.Times.Closed != 4*9*time.Minute {
			t.Errorf("after an hour: %+v, want nothing, and nine full minutes of slots", got)
		}
	})
}

// TestHistogram: a quantile is at most 19 % above the true one, never below it, and adding
// up parts counts the same as counting the whole.
func TestHistogram(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var whole Histogram
	parts := make([]Histogram, 3)
	var all []time.Duration
	for i := range 10_000 {
		d := time.Duration(random.ExpFloat64() * float64(90*time.Second))
		all = append(all, d)
		whole.Add(d)
		parts[i%3].Add(d)
	}
	slices.Sort(all)
	for _, q := range []float64{0.5, 0.95, 0.99, 1} {
		exact, got := all[int(q*float64(len(all)))-1], whole.Quantile(q)
		if got < exact || float64(got) > 1.1893*float64(exact) {
			t.Errorf("quantile %g = %s, want %s to 19 %% more", q, got, exact)
		}
	}
	var sum Histogram
	for _, p := range parts {
		sum.Merge(p)
	}
	if diff := cmp.Diff(whole, sum); diff != "" {
		t.Errorf("parts added up (-whole +sum)\n%s", diff)
	}
	if got := whole.coarser(5); len(got) > 5 || got.Count() != whole.Count() || got.Quantile(0.5) < whole.Quantile(0.5) {
		t.Errorf("coarser(5) = %v", got)
	}
	for d, want := range map[time.Duration]int{0: 0, time.Millisecond: 0, 2 * time.Millisecond: 4, 1000 * 24 * time.Hour: maxIndex} {
		if got := indexOf(d); got != want {
			t.Errorf("bucket of %s = %d, want %d", d, got, want)
		}
	}
	if got := Histogram(nil).Quantile(0.5); got != 0 {
		t.Errorf("quantile of nothing = %s, want 0", got)
	}
}

// TestFormat: the wire form is read as it was written, and its size has a limit that loses
// no job.
func TestFormat(t *testing.T) {
	r := Report{Slots: 8, Times: Times{90 * time.Second, 1500 * time.Millisecond, 3 * time.Second, 0}, Kinds: []Kind{
		{Name: "digest", Failed: 3, Efforts: Efforts{Failed: time.Second, Redone: 100 * time.Millisecond}},
		{Name: "render", Done: 56, Efforts: Efforts{Committed: time.Hour, HandedOver: time.Second}, Durations: Histogram{{40, 12}, {44, 44}}},
	}}
	slots, kinds := r.FormatSlots(), r.FormatKinds()
	if slots != "8,90.0,1.5,3.0,0.0" || kinds != "digest,0,3,0.0,0.0,1.0,0.1,;render,56,0,3600.0,1.0,0.0,0.0,40.12:44.44" {
		t.Errorf("written: %s and %s", slots, kinds)
	}
	if diff := cmp.Diff(r, Parse(slots, kinds)); diff != "" {
		t.Errorf("written and read (-want +got)\n%s", diff)
	}
	many, jobs := Report{Slots: 1}, 0
	for i := range 200 {
		k := Kind{Name: fmt.Sprintf("%s-%03d", strings.Repeat("k", 60), i), Done: i}
		for n := range i {
			k.Durations.Add(time.Duration(n*n*n) * time.Millisecond)
		}
		many.Kinds, jobs = append(many.Kinds, k), jobs+i
	}
	text := many.FormatKinds()
	got := 0
	kept := Parse("1,0,0,0,0", text).Kinds
	for _, k := range kept {
		got += k.Done
	}
	if last := kept[len(kept)-1].Name; len(text) > maxText || got != jobs || len(kept) < 3 || last != MoreKinds {
		t.Errorf("200 kinds take %d bytes with %d jobs of %d in %d entries, the last one %s, want at most %d bytes, all jobs, %s last",
			len(text), got, jobs, len(kept), last, maxText, MoreKinds)
	}
}

// TestParseLeavesOut: nothing that somebody writes into a heartbeat breaks its reader.
func TestParseLeavesOut(t *testing.T) {
	for _, row := range []struct{ slots, kinds string }{
		{"", "render,1,0,0,0,0,0,"}, {"-4,1,1,1,1", ""}, {"4,1,1", ""}, {"four", ""},
	} {
		if got := Parse(row.slots, row.kinds); got.Slots != 0 || got.Kinds != nil {
			t.Errorf("Parse(%q, %q) = %+v, want the report of a worker that does not say", row.slots, row.kinds, got)
		}
	}
	got := Parse("4,NaN,-1,1e300,x", "render,-1,99999999999999999999,1,1,1,1,200.1:-1.4:3.x:5.2;,1,1,1,1,1,1,;short,1;")
	want := Report{Slots: 4, Times: Times{Idle: maxCount * time.Second}, Kinds: []Kind{
		{Name: "render", Efforts: Efforts{time.Second, time.Second, time.Second, time.Second}, Durations: Histogram{{5, 2}}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("odd text (-want +got)\n%s", diff)
	}
}
