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
	nearWork      = 800 * time.Millisecond // work that a run lost with its VM, in the mean
	nearClaimable = 2 * time.Second        // until the message of an interrupted run was visible, in the mean
)

// TestReplayAgrees: real workers lose as much work as workers in virtual time on
// VMs that live as long. An hour of virtual time has enough ends of VMs for exact means.
func TestReplayAgrees(t *testing.T) {
	s := replay.Default()
	s.Fleet.VMs, s.Fleet.Slots, s.Fleet.Lives, s.Fleet.Rate = 8, 2, replay.Constant, 300
	s.Fleet.Full, s.Fleet.Short, s.Fleet.Boot.Duration = 0, 0.4, 0
	s.Work.Jobs, s.Work.Length.Duration, s.Work.Restore.Duration = 50, 4*time.Second, 0
	s.Policy.Interval.Duration, s.Policy.Visibility.Duration = time.Second, 4*time.Second
	s.For.Duration = time.Minute // or until the jobs are done
	var story bytes.Buffer
	r, err := realtime.Run(t.Context(), realtime.Config{Scenario: s}, &story)
	if err != nil {
		t.Fatalf("%v\n%s", err, story.String())
	}
	s.For.Duration, s.Work.Jobs, s.Work.Load = time.Hour, 0, 0.7
	virtual, err := replay.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, r, virtual)
}

// compare compares a replay with real processes with one in virtual time. The share of useful work is not
// compared: on a slow machine workers start later, and VMs that live as long end fewer runs.
func compare(t *testing.T, r, virtual *replay.Report) {
	t.Helper()
	compareEnds(t, "notice", r.Warned, virtual.Warned, 1)
	compareEnds(t, "death", r.Sudden, virtual.Sudden, 4)
	// A notice may be too short for a state on a slow machine: the work lost after it is not compared.
	if math.Abs(r.Sudden.Redone-virtual.Sudden.Redone) > nearWork.Seconds() {
		t.Errorf("a death lost %.3f s, and %.3f s in virtual time: more than %s apart", r.Sudden.Redone, virtual.Sudden.Redone, nearWork)
	}
}

// compareEnds compares the runs that were ended, at least so many.
func compareEnds(t *testing.T, name string, got, want replay.Losses, least int) {
	t.Helper()
	t.Logf("%s: %d runs lost %.3f s, claimable after %.3f s; virtual %d runs, %.3f s, %.3f s", name, got.Runs, got.Redone, got.Hidden,
		want.Runs, want.Redone, want.Hidden)
	if got.Runs < least || want.Runs < 100 {
		t.Fatalf("%s: %d runs were ended, in virtual time %d: too few to compare", name, got.Runs, want.Runs)
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
