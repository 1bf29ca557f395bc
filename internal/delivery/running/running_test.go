package running

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/job"
)

// TestSaveAllOfAJobThatEnds: a job that ends while all are asked to save answers
// with its end, so that a freeze is acknowledged.
func TestSaveAllOfAJobThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := &Set{}
		seat, other := room.Add("a", room.Start(nil), nil), room.Add("a", room.Start(nil), nil)
		r := room.SaveAll()
		Answer(other.TakeRequests(), true)
		seat.Remove()
		other.Remove()
		answered := make(chan struct{})
		go func() { r.Wait(); close(answered) }()
		synctest.Wait()
		select {
		case <-answered:
		default:
			t.Fatal("the round has no answer from a job that ended")
		}
		if jobs, unsaved := r.Wait(); jobs != 2 || unsaved != 0 {
			t.Errorf("jobs = %d, unsaved = %d, want 2, 0", jobs, unsaved)
		}
	})
}

// TestSilence: a job counts as silent after a pause that is long compared with the pauses
// between its reports, and a job that never reports after an hour.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := &Set{}
		often, seldom, never := jobs.Start(nil), jobs.Start(nil), jobs.Start(nil)
		for _, watch := range []*Stopwatch{often, seldom, never} {
			defer jobs.Add("a", watch, nil).Remove()
		}
		for range 6 {
			for range 25 {
				time.Sleep(2 * time.Second)
				often.Reported()
			}
			seldom.Reported()
		}
		often.Saved()
		for _, step := range []struct {
			wait   time.Duration
			silent int
		}{{silentFor, 0}, {time.Second, 1}, {500*time.Second - silentFor - time.Second, 1}, {time.Second, 2},
			{silentAtFirst - 801*time.Second, 2}, {time.Second, 3}} {
			time.Sleep(step.wait)
			if _, _, silent, _ := jobs.Silence(); silent != step.silent {
				t.Errorf("silent jobs after %s more = %d, want %d", step.wait, silent, step.silent)
			}
		}
		report, checkpoint, _, _ := jobs.Silence()
		if report <= silentAtFirst {
			t.Errorf("age of the oldest report = %s, want that of the job that never reported", report)
		}
		if checkpoint < silentAtFirst {
			t.Errorf("age of the oldest checkpoint = %s, want the age of a job without one", checkpoint)
		}
	})
}

// TestSilenceOfAKind: a job that never reports counts as silent after ten times the longest
// run time of its kind, if the worker has done enough jobs of the kind to know.
func TestSilenceOfAKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, row := range map[string]struct {
			done int
			ran  time.Duration
			want time.Duration
		}{
			"short jobs":         {usualFrom, time.Second, silentSoonest},
			"jobs of a minute":   {usualFrom, time.Minute, 10 * time.Minute},
			"long jobs":          {usualFrom, time.Hour, silentAtFirst},
			"too few to tell":    {usualFrom - 1, time.Second, silentAtFirst},
			"no job of the kind": {0, 0, silentAtFirst},
		} {
			jobs := &Set{}
			for range row.done {
				jobs.Done("a", row.ran)
			}
			for range usualFrom {
				jobs.Done("b", time.Second)
			}
			watch := jobs.Start(nil)
			hangs := jobs.Add("a", watch, nil)
			time.Sleep(row.want)
			if _, _, silent, longest := jobs.Silence(); silent != 0 || longest != nil {
				t.Errorf("%s: %d jobs are silent after %s, want none", name, silent, row.want)
			}
			time.Sleep(time.Second)
			if _, _, silent, longest := jobs.Silence(); silent != 1 || longest != hangs {
				t.Errorf("%s: %d jobs are silent after more than %s, want the one", name, silent, row.want)
			}
			watch.Stop()
			hangs.Remove()
		}
	})
}

// TestRecordedTime: how much of a run's time is in the record that a release leaves.
func TestRecordedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &job.Progress{}, &job.Progress{}
		watch := new(Clock).start(nil)
		time.Sleep(3 * time.Second)
		watch.Notice(first)
		watch.Reported()
		watch.Saved()
		time.Sleep(4 * time.Second)
		watch.Stop()
		for _, row := range []struct {
			what    string
			latest  *job.Progress
			leftOut bool
			want    time.Duration
		}{
			{"no report since", first, false, 3 * time.Second},
			{"a report that the loop has not seen", second, false, 7 * time.Second},
			{"the last report is left out", second, true, 3 * time.Second},
		} {
			if got, lost := watch.Split(row.latest, row.leftOut); got != row.want || got+lost != 7*time.Second {
				t.Errorf("%s: %s recorded, %s lost, want %s of 7s", row.what, got, lost, row.want)
			}
		}
	})
}

// TestReportedAt: the time of a state is the time of its first report. It is exact for a
// handler that reports less often than the loop turns.
func TestReportedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := new(Clock).start(nil)
		report := func(state string) *job.Progress {
			p := &job.Progress{State: []byte(state)}
			watch.Stamp(p)
			return p
		}
		expect := func(what string, p *job.Progress, want time.Duration) {
			t.Helper()
			if got := watch.ReportedAt(p); got != want {
				t.Errorf("%s: reported at %s, want %s", what, got, want)
			}
		}
		expect("no report", nil, 0)
		expect("a report without a state", &job.Progress{Fraction: 0.5}, 0)
		time.Sleep(3 * time.Second)
		first := report("a")
		time.Sleep(4 * time.Second)
		expect("the loop has not seen it", first, 3*time.Second)
		watch.Notice(first)
		expect("the loop has seen it", first, 3*time.Second)
		again := report("a")
		watch.Notice(again)
		expect("the same state again", again, 3*time.Second)
		report("b")
		time.Sleep(time.Second)
		expect("one of several since the loop turned", report("c"), 8*time.Second)
		time.Sleep(time.Second)
		last := report("d")
		watch.Notice(last)
		time.Sleep(time.Second)
		expect("seen with them", last, 9*time.Second)
	})
}
