//go:build integration

package chaos

import (
	"bytes"
	"context"
	"math"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/realtime"
	"github.com/spotworker/spotworker/internal/replay"
)

// Tolerances between real and virtual time (docs/lab.md).
const (
	nearWork      = 800 * time.Millisecond // work that an interrupted run lost, in the mean
	nearGoodput   = 10.0                   // percent: useful work of the work
	nearClaimable = time.Second            // until the message of an interrupted run was visible, in the mean
)

// TestReplayAgrees is `lab replay --real`: real workers lose as much work as workers in virtual time on
// VMs that live as long. An hour of virtual time has enough ends of VMs for exact means.
func TestReplayAgrees(t *testing.T) {
	s := replay.Default()
	s.Fleet.VMs, s.Fleet.Slots, s.Fleet.Lives, s.Fleet.Rate = 8, 2, replay.Constant, 360
	s.Fleet.Full, s.Fleet.Short, s.Fleet.Boot.Duration = 0, 0.3, 0
	s.Work.Jobs, s.Work.Length.Duration, s.Work.Restore.Duration = 50, 4*time.Second, 0
	s.Policy.Interval.Duration, s.Policy.Visibility.Duration = time.Second, 4*time.Second
	s.For.Duration = time.Minute // or until the jobs are done
	var story bytes.Buffer
	r, err := realtime.Run(t.Context(), realtime.Config{Scenario: s}, &story)
	if err != nil {
		t.Fatalf("%v\n%s", err, story.String())
	}
	for _, row := range r.Both() {
		t.Logf("%-32s %12s %12s", row[0], row[1], row[2])
	}
	s.For.Duration, s.Work.Jobs, s.Work.Load = time.Hour, 0, 0.7
	virtual, err := replay.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, r, virtual)
}

// compare compares a replay with real processes with one in virtual time.
func compare(t *testing.T, r, virtual *replay.Report) {
	t.Helper()
	useful := func(r *replay.Report) float64 { return 100 * r.Hours.Useful / (r.Hours.Useful + r.Hours.Redone) }
	if got, want := useful(r), useful(virtual); math.Abs(got-want) > nearGoodput {
		t.Errorf("useful work %.1f %%, and %.1f %% in virtual time: more than %.0f points apart", got, want, nearGoodput)
	}
	compareEnds(t, "notice", r.Warned, virtual.Warned)
	compareEnds(t, "death", r.Sudden, virtual.Sudden)
}

// compareEnds compares the runs that were ended.
func compareEnds(t *testing.T, name string, got, want replay.Losses) {
	t.Helper()
	t.Logf("%s: %d runs lost %.3f s, claimable after %.3f s; virtual %d runs, %.3f s, %.3f s", name, got.Runs, got.Redone, got.Hidden,
		want.Runs, want.Redone, want.Hidden)
	if got.Runs < 4 || want.Runs < 100 {
		t.Fatalf("%s: %d runs were ended, in virtual time %d: too few to compare", name, got.Runs, want.Runs)
	}
	if math.Abs(got.Redone-want.Redone) > nearWork.Seconds() {
		t.Errorf("%s: a run lost %.3f s, and %.3f s in virtual time: more than %s apart", name, got.Redone, want.Redone, nearWork)
	}
	if math.Abs(got.Hidden-want.Hidden) > nearClaimable.Seconds() {
		t.Errorf("%s: claimable after %.3f s, and %.3f s in virtual time: more than %s apart", name, got.Hidden, want.Hidden, nearClaimable)
	}
}

// TestReplayInterrupted: an interrupted replay ends all processes.
func TestReplayInterrupted(t *testing.T) {
	s := replay.Default()
	s.Fleet.VMs, s.Fleet.Boot.Duration, s.For.Duration = 2, 0, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	began := time.Now()
	if r, err := realtime.Run(ctx, realtime.Config{Scenario: s}, &bytes.Buffer{}); err == nil || r != nil || time.Since(began) > time.Minute {
		t.Errorf("an interrupted replay = %v, %v after %s", r, err, time.Since(began))
	}
}
