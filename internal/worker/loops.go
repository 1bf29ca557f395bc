package worker

import (
	"time"

	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/telemetry/health"
)

// By when each loop turns again at the latest, besides the time that it waits.
// A turn is made of calls that end within 20 s each, their retries included.
const (
	// claimTurn is for claims and the release of messages that got no slot.
	claimTurn = 2 * time.Minute

	// phaseTurn is for one try of the warm-up, the wait after it included, and
	// for everything else that comes before work.
	phaseTurn = 4 * time.Minute

	// briefTurn is for work that should take seconds.
	briefTurn = 30 * time.Second
)

// loops are the loops of a worker. Their health shows whether it still works.
type loops struct {
	phase     *health.Loop // the way through the states, and the drain
	claim     *health.Loop
	watch     *health.Loop
	heartbeat *health.Loop
}

func newLoops(all *health.Loops, now time.Time) loops {
	return loops{
		phase: all.Add("phase", now), claim: all.Add("claim", now),
		watch: all.Add("watch", now), heartbeat: all.Add("presence", now),
	}
}

// enter says what to expect of a state. Process and Shutdown take as long as
// they take: there the claim loop turns, and a drain says when it is over.
func (l loops) enter(state lifecycle.State, now time.Time) {
	switch state {
	case lifecycle.Start, lifecycle.Recover, lifecycle.Resume:
		l.phase.Turn(now, phaseTurn)
	default:
		l.phase.Rest()
	}
}

// drain says that the state will be left when the drain is over.
func (l loops) drain(d *drain.Drain, now time.Time) {
	if d != nil {
		l.phase.Turn(now, max(d.End().Sub(now), 0)+briefTurn)
	}
}
