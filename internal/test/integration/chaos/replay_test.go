//go:build integration

package chaos

import (
	"math"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/chaos"
	"github.com/spotworker/spotworker/internal/replay"
)

// Tolerances between real and virtual time (docs/lab.md).
const (
	nearWork      = 800 * time.Millisecond // work that a run lost with its VM, on average
	nearClaimable = 2 * time.Second        // until the message of a killed worker was visible, on average
)

// TestReplayAgrees: real workers lose as much work as workers in virtual time whose VMs die as often. An
// hour of virtual time has enough deaths for exact averages.
func TestReplayAgrees(t *testing.T) {
	const workers, slots, life, length, interval, visibility = 8, 2, 12 * time.Second, 4 * time.Second, time.Second, 4 * time.Second
	deaths := run(t, chaos.Config{
		For: time.Minute, Workers: workers, JobsAtOnce: slots, PerSecond: workers / life.Seconds(), JobTime: length,
		Visibility: visibility, CheckpointInterval: interval, AnyMoment: true,
	})

	s := replay.Default()
	s.Fleet.VMs, s.Fleet.Slots, s.Fleet.Lives, s.Fleet.Rate = workers, slots, replay.Poisson, time.Hour.Seconds()/life.Seconds()
	s.Fleet.Full, s.Fleet.Short, s.Fleet.Boot.Duration = 0, 0, 0
	s.Work.Load, s.Work.Length.Duration, s.Work.Restore.Duration = 0.7, length, 0
	s.Policy.Interval.Duration, s.Policy.Visibility.Duration = interval, visibility
	s.For.Duration = time.Hour
	virtual, err := replay.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	redone, hidden := deaths.Redone.Seconds(), deaths.Hidden.Seconds()
	t.Logf("%d runs lost %.3f s, claimable after %.3f s; virtual %d runs, %.3f s, %.3f s", deaths.Runs, redone, hidden,
		virtual.Sudden.Runs, virtual.Sudden.Redone, virtual.Sudden.Hidden)
	if deaths.Runs < 10 || virtual.Sudden.Runs < 100 {
		t.Fatal("too few deaths to compare")
	}
	if math.Abs(redone-virtual.Sudden.Redone) > nearWork.Seconds() {
		t.Errorf("a death costs more than %s more or less work than in virtual time", nearWork)
	}
	if math.Abs(hidden-virtual.Sudden.Hidden) > nearClaimable.Seconds() {
		t.Errorf("a message is claimable more than %s sooner or later than in virtual time", nearClaimable)
	}
}
