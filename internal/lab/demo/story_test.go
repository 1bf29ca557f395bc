package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/replay/lanes"
)

// told returns the story of a run. The VMs of [goodRun] start in the order of their numbers.
func told(h *history, end endState) lanes.Story {
	for n, vm := range []string{"spot_1", "spot_2", "spot_3", "spot_4", "spot_5"} {
		h.born[vm] = at(time.Duration(n) * ms)
	}
	return tell(h, newReport(audit(h, end), 2*second, "4 jobs"))
}

// TestTell: the story has each VM with its fate, each job with its runs, and the figures of the
// report.
func TestTell(t *testing.T) {
	got := told(goodRun())
	if want := at(35 * second).Sub(at(0)); got.Took != want {
		t.Errorf("Took = %s, want %s: the last result", got.Took, want)
	}
	vms := []lanes.VM{
		{Name: "spot_1", To: 5 * second, Fate: lanes.Killed, Struck: 5 * second},
		{Name: "spot_2", From: ms, To: 6700 * ms, Fate: lanes.Evicted, Struck: 6 * second},
		{Name: "spot_3", From: 2 * ms},
		{Name: "spot_4", From: 3 * ms, Fate: lanes.Frozen, Struck: 5 * second, Thawed: 32 * second},
		{Name: "spot_5", From: 4 * ms},
	}
	if diff := cmp.Diff(vms, got.VMs); diff != "" {
		t.Errorf("VMs (-want +got):\n%s", diff)
	}
	jobs := []lanes.Job{
		{Name: "fa", Done: 35 * second, Runs: []lanes.Run{
			{VM: 0, From: 1100 * ms, To: 5 * second, End: lanes.Died, Saves: []time.Duration{3010 * ms}, Lost: 1990 * ms},
			{VM: 2, From: 31100 * ms, To: 35 * second, End: lanes.Committed},
		}},
		{Name: "fb", Done: 9 * second, Runs: []lanes.Run{
			{VM: 1, From: 1100 * ms, To: 6550 * ms, End: lanes.Released, Saves: []time.Duration{6530 * ms}},
			{VM: 2, From: 7100 * ms, To: 9 * second, End: lanes.Committed},
		}},
		{Name: "fc", Done: 35 * second, Runs: []lanes.Run{
			{VM: 3, From: 1100 * ms, To: 5 * second, End: lanes.Fell, Saves: []time.Duration{3005 * ms}, Lost: 1995 * ms,
				StaleFrom: 32 * second, StaleTo: 32030 * ms},
			{VM: 2, From: 31100 * ms, To: 35 * second, End: lanes.Committed},
		}},
		{Name: "fd", Done: 2500 * ms, Runs: []lanes.Run{
			{VM: 2, From: 1100 * ms, To: 2500 * ms, End: lanes.Committed},
			{VM: 4, From: 1200 * ms, To: 3 * second, End: lanes.Left},
		}},
	}
	if diff := cmp.Diff(jobs, got.Jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	figures := []lanes.Figure{
		{Value: "0", Name: "jobs lost", Note: "4 of 4 have their result"}, {Value: "0", Name: "done twice", Note: "1 put twice on purpose"},
		{Value: "0", Name: "redone after a notice", Note: "12 B after kill and freeze"},
	}
	if diff := cmp.Diff(figures, got.Figures); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	if got.About != "4 jobs" || len(got.Promises) < 20 {
		t.Errorf("About = %q with %d promises", got.About, len(got.Promises))
	}
}

// TestTellOfABadRun: a lost job, a second commit and redone work are in the story.
func TestTellOfABadRun(t *testing.T) {
	h, end := goodRun()
	h.without("a", "done")
	h.became("d", "spot_3", "d1", "done", 2700*ms)
	h.ranges = append(h.ranges, hashedRange{"b", "spot_3", 0, 3, at(8100 * ms)})
	got := told(h, end)
	want := []lanes.Figure{
		{Value: "1", Name: "jobs lost", Note: "3 of 4 have their result", Bad: true},
		{Value: "1", Name: "done twice", Note: "1 put twice on purpose", Bad: true},
		{Value: "3 B", Name: "redone after a notice", Note: "12 B after kill and freeze", Bad: true},
	}
	if diff := cmp.Diff(want, got.Figures); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	if a := got.Jobs[0]; a.Done != 0 {
		t.Errorf("job a was done at %s, want no result", a.Done)
	}
	var svg strings.Builder
	if err := got.SVG(&svg); err != nil || strings.Count(svg.String(), `class="value bad"`) != 3 {
		t.Errorf("SVG = %v with %d bad figures, want 3", err, strings.Count(svg.String(), `class="value bad"`))
	}
}

// TestTellOfNothing: a run that ended before its first VM has a story.
func TestTellOfNothing(t *testing.T) {
	got := tell(newHistory(), newReport(findings{}, 0, ""))
	if got.Took != 0 || len(got.VMs)+len(got.Jobs) != 0 || got.Figures[2].Value != "–" {
		t.Errorf("story of nothing = %+v", got)
	}
}
