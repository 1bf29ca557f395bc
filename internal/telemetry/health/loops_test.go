package health

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var start = time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

func TestLoopsTurn(t *testing.T) {
	var loops Loops
	claim, watch := loops.Add("claim", start), loops.Add("watch", start)
	if got := loops.Check(at(time.Hour)); !got.Healthy() {
		t.Errorf("loops that never turned: %s, want them at rest", got)
	}
	claim.Turn(at(time.Second), 10*time.Second)
	watch.Turn(at(time.Second), 5*time.Second)
	for _, row := range []struct {
		at   time.Duration
		want []Stuck
	}{
		{time.Second, nil},
		{6 * time.Second, nil},
		{6*time.Second + 1, []Stuck{{"watch", 1}}},
		{11 * time.Second, []Stuck{{"watch", 5 * time.Second}}},
		{12 * time.Second, []Stuck{{"claim", time.Second}, {"watch", 6 * time.Second}}},
	} {
		if diff := cmp.Diff(row.want, loops.Check(at(row.at)).Stuck); diff != "" {
			t.Errorf("stuck after %s (-want +got):\n%s", row.at, diff)
		}
	}
	claim.Rest()
	watch.Turn(at(12*time.Second), time.Second)
	if got := loops.Check(at(13 * time.Second)); !got.Healthy() {
		t.Errorf("one loop rests and one turned: %s, want both well", got)
	}
}

func TestReportReads(t *testing.T) {
	for want, r := range map[string]Report{
		"all loops turn": {},
		"stuck: claim (should have turned 35s ago), watch (should have turned 1.5s ago)": {Stuck: []Stuck{
			{"claim", 35 * time.Second}, {"watch", 1500 * time.Millisecond},
		}},
	} {
		if got := r.String(); got != want {
			t.Errorf("report = %q, want %q", got, want)
		}
	}
}

// A loop of short jobs turns for each of them.
func TestTurnCostsNoMemory(t *testing.T) {
	var loops Loops
	loop := loops.Add("claim", time.Now())
	if got := testing.AllocsPerRun(100, func() { loop.Turn(time.Now(), time.Second) }); got != 0 {
		t.Errorf("Turn allocates %v times, want never", got)
	}
}

// TestNotes: what people should know changes nothing about the health.
func TestNotes(t *testing.T) {
	var loops Loops
	loops.Note("b", "kind b rests")
	loops.Note("a", "kind a rests")
	loops.Note("a", "kind a rests longer")
	got := loops.Check(start)
	if diff := cmp.Diff([]string{"kind a rests longer", "kind b rests"}, got.Notes); diff != "" || !got.Healthy() {
		t.Errorf("healthy %t, want true; notes (-want +got):\n%s", got.Healthy(), diff)
	}
	loops.Note("a", "")
	if diff := cmp.Diff([]string{"kind b rests"}, loops.Check(start).Notes); diff != "" {
		t.Errorf("notes after one was taken back (-want +got):\n%s", diff)
	}
}
