package replay

import (
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// Workers sum up the fleet's heartbeats every 15 minutes, of the last 7 days, and take a
// worker for dead 2 minutes after its last heartbeat (package worker).
const (
	sampleEvery  = 15 * time.Minute
	sampleWindow = 7 * 24 * time.Hour
	sampleLate   = 2 * time.Minute
)

// observed holds the workers' knowledge of the fleet's losses, at each sample.
type observed []checkpoint.Losses

// at returns the knowledge at a moment.
func (o observed) at(t time.Duration) checkpoint.Losses {
	return o[min(int(t/sampleEvery), len(o)-1)]
}

// observe sums up the lives until the horizon.
func observe(lanes [][]life, horizon time.Duration) observed {
	var starts, ends []life
	for _, lane := range lanes {
		for _, l := range lane {
			if l.ready < min(l.seen, horizon) {
				starts = append(starts, l)
			}
		}
	}
	ends = slices.Clone(starts)
	slices.SortFunc(starts, func(a, b life) int { return int(a.ready - b.ready) })
	slices.SortFunc(ends, func(a, b life) int { return int(a.end - b.end) })
	var o observed
	var known checkpoint.Losses // of the dead
	alive, sum := 0, time.Duration(0)
	begun, died, forgotten := 0, 0, 0
	count := func(l life, by int) {
		known.Watched += time.Duration(by) * (l.end - l.ready)
		if l.warned() {
			known.Warned += by
		} else {
			known.Sudden += by
		}
	}
	for now := time.Duration(0); now <= horizon; now += sampleEvery {
		for ; begun < len(starts) && starts[begun].ready <= now; begun++ {
			alive, sum = alive+1, sum+starts[begun].ready
		}
		for ; died < len(ends) && ends[died].end+sampleLate <= now; died++ {
			alive, sum = alive-1, sum-ends[died].ready
			count(ends[died], 1)
		}
		for ; forgotten < died && ends[forgotten].end+sampleWindow < now; forgotten++ {
			count(ends[forgotten], -1)
		}
		sample := known
		sample.Watched += time.Duration(alive)*now - sum
		o = append(o, sample)
	}
	return o
}
