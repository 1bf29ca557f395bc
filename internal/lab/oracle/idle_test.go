package oracle

import (
	"testing"
	"time"
)

// view is a history and the slots of two workers: "a" has the kind that others
// lack, "b" lacks it. Both have a free slot from the beginning.
type view struct {
	jobs  map[string]*Job
	slots map[string]*Slots
}

func newView() *view {
	v := &view{jobs: map[string]*Job{}, slots: map[string]*Slots{"a": {Restricted: true}, "b": {}}}
	v.slots["a"].Set(true, at(0))
	v.slots["b"].Set(true, at(0))
	return v
}

// job adds a job that was put at second from and ended at to, with these runs.
func (v *view) job(restricted bool, from, to int, runs ...Span) {
	v.jobs["j"] = &Job{Put: at(from), Ended: at(to), Restricted: restricted, Runs: runs}
}

// busy has a worker without a free slot for a while.
func (v *view) busy(vm string, from, to int) {
	v.slots[vm].Set(false, at(from))
	v.slots[vm].Set(true, at(to))
}

func during(from, to int) Span { return Span{at(from), at(to)} }

// TestWorstIdle: only time counts in which the job waited and one and the same
// worker could have taken it.
func TestWorstIdle(t *testing.T) {
	for name, row := range map[string]struct {
		happens func(*view)
		want    int // seconds
	}{
		"taken at once":               {func(v *view) { v.job(false, 10, 40, during(11, 40)) }, 1},
		"never taken":                 {func(v *view) { v.job(false, 10, 40) }, 30},
		"between two runs":            {func(v *view) { v.job(false, 10, 40, during(10, 20), during(32, 40)) }, 12},
		"two runs that overlap":       {func(v *view) { v.job(false, 10, 40, during(10, 30), during(12, 20), during(33, 40)) }, 3},
		"workers busy":                {func(v *view) { v.job(false, 10, 40); v.busy("a", 5, 35); v.busy("b", 5, 37) }, 5},
		"two workers busy in turn":    {func(v *view) { v.job(false, 10, 40); v.busy("a", 5, 25); v.busy("b", 25, 41) }, 15},
		"restricted, the other busy":  {func(v *view) { v.job(true, 10, 40); v.busy("a", 5, 38) }, 2},
		"not of those that lack it":   {func(v *view) { v.job(true, 10, 40); v.busy("a", 5, 41) }, 0},
		"busy in between":             {func(v *view) { v.job(true, 10, 40); v.busy("a", 15, 30) }, 10},
		"no outcome":                  {func(v *view) { v.job(false, 10, 40); v.jobs["j"].Ended = time.Time{} }, 90},
		"a run beyond the outcome":    {func(v *view) { v.job(false, 10, 40, during(12, 50)) }, 2},
		"across periods of the index": {func(v *view) { v.job(false, 3, 97) }, 94},
	} {
		t.Run(name, func(t *testing.T) {
			v := newView()
			row.happens(v)
			if got, _ := WorstIdle(v.jobs, v.slots, at(100)); got.Length() != time.Duration(row.want)*time.Second {
				t.Errorf("WorstIdle = %s, want %d s", got, row.want)
			}
		})
	}
}

// A job is in quarantine after three unclean exits in a row, and out of it with a
// new state; its idle time counts apart.
func TestQuarantineCountsApart(t *testing.T) {
	for name, row := range map[string]struct {
		job  *testJob
		want int
	}{
		"nothing written":   {newJob(), 0},
		"two unclean exits": {deaths(1), 2},
		"three":             {deaths(2), 3},
		"a release between": {deaths(2).but(1, func(w *Write) { w.Status = Open }), 1},
		"a state between":   {deaths(2).but(1, func(w *Write) { w.State = "s" }), 1},
		"a state at last":   {deaths(2).but(2, func(w *Write) { w.State = "s" }), 0},
	} {
		j := &row.job.Job
		if got := j.uncleanExits(at(50)); got != row.want {
			t.Errorf("%s: unclean exits = %d, want %d", name, got, row.want)
		}
		v := newView()
		j.Ended, j.Runs = at(70), []Span{during(0, 60)}
		v.jobs["j"] = j
		worst, quarantined := WorstIdle(v.jobs, v.slots, at(70))
		if want := row.want >= quarantineAfter; (quarantined.Length() == 10*time.Second) != want || (worst.Length() == 10*time.Second) == want {
			t.Errorf("%s: idle %s, in quarantine %s, want 10 s in quarantine: %t", name, worst.Length(), quarantined.Length(), want)
		}
	}
}
