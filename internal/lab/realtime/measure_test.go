package realtime

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/replay"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

const s = time.Second

// story feeds a recorder with log lines, at times since the start.
type story struct {
	*recorder
	t     *testing.T
	began time.Time
}

func newStory(t *testing.T) story {
	t.Helper()
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		t.Fatal(err)
	}
	fail := func(err error) { t.Error(err) }
	return story{newRecorder(storage.New(storage.Options{}), names, fail), t, time.Unix(1_700_000_000, 0).UTC()}
}

func (st story) at(d time.Duration) time.Time { return st.began.Add(d) }

// log logs a line of a worker.
func (st story) log(vm string, at time.Duration, msg, job string, generation int, more map[string]any) {
	fields := map[string]any{"time": st.at(at), "msg": msg, "job_id": job, "message_id": "message of " + job, "generation": generation}
	maps.Copy(fields, more)
	line, err := json.Marshal(fields)
	if err != nil {
		st.t.Fatal(err)
	}
	st.onLine(vm, line)
}

// ledger sets the useful time in the ledger of a record.
func (st story) ledger(job, vm string, generation int, useful time.Duration) {
	if st.useful[job] == nil {
		st.useful[job] = map[claim]time.Duration{}
	}
	st.useful[job][claim{vm, generation}] = useful
}

// measured returns the runs of the story, in the order of their claims.
func (st story) measured(change func(*replay.Scenario)) []replay.RealRun {
	scenario := replay.Default()
	scenario.Work.Restore.Duration = s
	change(&scenario)
	m := measured{plan: &replay.Plan{Scenario: scenario}, began: st.began}
	m.lanes, m.jobs = map[string]int{"a": 0, "b": 1}, map[string]int{"x": 0, "y": 1}
	if !scenario.Work.Beside {
		m.hold = hold(scenario.Work)
	}
	runs := m.runs(st.recorder)
	slices.SortStableFunc(runs, func(a, b replay.RealRun) int { return cmp.Compare(a.From, b.From) })
	return runs
}

// TestRuns: a job is released, dies with its next VM, and is done on the third try.
func TestRuns(t *testing.T) {
	st := newStory(t)
	st.claims["message of x"] = st.at(1 * s)
	st.log("a", 2*s, "job started", "x", 1, nil)
	st.log("a", 7*s, "checkpoint saved", "x", 1, nil)
	st.log("a", 10*s, "work stopped", "", 0, nil)
	st.visible["message of x"] = st.at(11 * s)
	st.log("a", 12*s, "job released", "x", 0, map[string]any{"state_bytes": 10})
	st.ledger("x", "a", 1, 8*s)

	st.claims["message of x"] = st.at(13 * s)
	st.log("b", 14*s, "job started", "x", 2, nil)
	st.log("b", 18*s, "checkpoint saved", "x", 2, nil)
	st.ledger("x", "b", 2, 8*s+4*s)
	st.gone("b", st.at(20*s))

	st.claims["message of x"] = st.at(50 * s)
	st.log("a", 51*s, "job started", "x", 3, nil)
	st.log("a", 60*s, "job committed", "x", 3, nil)
	st.ledger("x", "a", 3, 20*s)
	st.log("a", 61*s, "job started", "y", 1, nil) // no claim was recorded
	st.close(st.at(65 * s))
	st.log("a", 66*s, "job committed", "y", 1, nil)

	got := st.measured(func(*replay.Scenario) {})
	saved := 35 * time.Millisecond // the job stands still
	want := []replay.RealRun{
		{Job: 1, From: 61 * s, Works: 61 * s, To: 65 * s, Lost: 65 * s, End: replay.Cut, Kept: 4 * s},
		{Job: 0, From: 1 * s, Works: 2 * s, To: 12 * s, Lost: 10 * s, End: replay.Released, Saves: []time.Duration{7 * s}, SavedAtRelease: true,
			Visible: 11 * s, Saving: saved + 2*s, Kept: 8*s - saved},
		{Job: 0, Lane: 1, From: 13 * s, Works: 15 * s, To: 20 * s, Lost: 20 * s, End: replay.Died, Saves: []time.Duration{18 * s},
			Visible: 20 * s, Saving: saved, Kept: 3*s - saved, Redone: 2 * s},
		{Job: 0, From: 50 * s, Works: 52 * s, To: 60 * s, Lost: 60 * s, End: replay.Done, Kept: 8 * s},
	}
	want = append(want[1:], want[0])
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// TestRunWithoutSave: all work of a run that died without a save is lost, and a run that committed
// just before it died is done.
func TestRunWithoutSave(t *testing.T) {
	st := newStory(t)
	st.claims["message of x"], st.claims["message of y"] = st.at(1*s), st.at(1*s)
	st.log("a", 2*s, "job started", "x", 1, nil)
	st.log("b", 2*s, "job started", "y", 1, nil)
	st.done["y"] = st.at(5 * s)
	st.ledger("y", "b", 1, 3*s)
	st.gone("a", st.at(6*s))
	st.gone("b", st.at(6*s))
	st.close(st.at(7 * s))
	got := st.measured(func(*replay.Scenario) {})
	slices.SortFunc(got, func(a, b replay.RealRun) int { return cmp.Compare(a.Job, b.Job) })
	want := []replay.RealRun{
		{Job: 0, From: 1 * s, Works: 2 * s, To: 6 * s, Lost: 6 * s, End: replay.Died, Redone: 4 * s, Visible: 6 * s},
		{Job: 1, Lane: 1, From: 1 * s, Works: 2 * s, To: 5 * s, Lost: 5 * s, End: replay.Done, Kept: 3 * s, Visible: 6 * s},
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// TestRunsOfOneGeneration: a run that died before its first write leaves no record, so that the next
// one has its generation again. The work is the next one's.
func TestRunsOfOneGeneration(t *testing.T) {
	st := newStory(t)
	st.log("a", 2*s, "job started", "x", 1, nil)
	st.gone("a", st.at(3*s))
	st.log("b", 10*s, "job started", "x", 1, nil)
	st.log("b", 14*s, "work stopped", "", 0, nil)
	st.log("b", 14*s, "job released", "x", 1, map[string]any{"state_bytes": 10})
	st.ledger("x", "b", 1, 4*s)
	st.close(st.at(20 * s))
	got := st.measured(func(*replay.Scenario) {})
	if len(got) != 2 || got[0].Kept != 0 || got[0].Redone != s || got[1].Kept != 4*s || got[1].Redone != 0 {
		t.Errorf("runs: %+v", got)
	}
}

// TestWaitForSlots: a message that was claimed ahead gets its slot when another run has ended.
func TestWaitForSlots(t *testing.T) {
	m := measured{plan: &replay.Plan{Scenario: replay.Default()}}
	m.plan.Scenario.Fleet.Slots = 2
	runs := []replay.RealRun{
		{Job: 1, From: 0, Works: 1 * s, To: 9 * s}, {Job: 2, From: 0, Works: 1 * s, To: 7 * s}, {Job: 3, From: 5 * s, Works: 8 * s, To: 20 * s},
		{Job: 4, Lane: 1, From: 5 * s, Works: 8 * s, To: 20 * s}, {Job: 5, From: 10 * s, Works: 11 * s, To: 20 * s},
	}
	m.waitForSlots(runs)
	from := map[int]time.Duration{}
	for _, r := range runs {
		from[r.Job] = r.From
	}
	if diff := gocmp.Diff(map[int]time.Duration{1: 0, 2: 0, 3: 7 * s, 4: 5 * s, 5: 10 * s}, from); diff != "" {
		t.Errorf("begin (-want +got):\n%s", diff)
	}
}

// TestFailingJob: a job that fails ends the replay.
func TestFailingJob(t *testing.T) {
	st := newStory(t)
	var failed error
	st.fail = func(err error) { failed = err }
	st.log("a", s, "message moved to the poison queue", "x", 1, map[string]any{"reason": "exit status 3"})
	if failed == nil {
		t.Error("a dead-lettered job does not end the replay")
	}
}
