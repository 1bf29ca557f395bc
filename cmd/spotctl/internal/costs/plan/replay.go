package plan

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spotworker/spotworker/internal/replay"
)

// Tolerance is how far the useful share of a model may be from the replayed share: one point.
const Tolerance = 0.01

// replayEvictions is about how many evictions a replay has, so that chance moves its result
// by far less than the tolerance.
const replayEvictions = 2000

// Replayed returns the useful share of the paid time in a replay of the assumptions of [ModelFor]:
// VMs that are evicted at random, none with a usable notice, and that have work all the time.
func Replayed(ctx context.Context, w Work, rate float64) (float64, error) {
	const week = 7 * 24 * time.Hour
	s := replay.Default()
	s.For.Duration = week
	s.Fleet.VMs = min(max(int(math.Ceil(replayEvictions/(rate*week.Hours()))), 20), 1000)
	s.Fleet.Rate, s.Fleet.Full, s.Fleet.Boot.Duration = rate, 0, w.Boot
	s.Work.Save.Duration, s.Work.Restore.Duration, s.Work.Length.Duration = w.Save, 0, 6*time.Hour
	s.Policy.Rate = min(rate, 1)
	r, err := replay.Run(ctx, s)
	if err != nil {
		return 0, fmt.Errorf("replaying %.3g evictions an hour: %w", rate, err)
	}
	return r.Hours.GoodputBusy() / 100, nil
}

// Disagrees reports whether the model of a choice is further from its replay than
// [Tolerance].
func (c Choice) Disagrees() bool {
	return c.Replayed > 0 && math.Abs(c.Model.Useful()-c.Replayed) > Tolerance
}

// Replay replays each choice, once for choices with the same rate.
func (r *Ranking) Replay(ctx context.Context, w Work) error {
	known := map[float64]float64{}
	for i, c := range r.Choices {
		if c.Rate <= 0 {
			continue
		}
		share, found := known[c.Rate]
		if !found {
			var err error
			if share, err = Replayed(ctx, w, c.Rate); err != nil {
				return err
			}
			known[c.Rate] = share
		}
		r.Choices[i].Replayed = share
	}
	return nil
}
