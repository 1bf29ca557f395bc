package worker

import (
	"context"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/retry"
)

const (
	// lossesEvery is how often a worker looks at the presences of the fleet, give
	// or take a quarter: one call. The first comes after lossesFirst, when workers
	// that started together have written theirs.
	lossesEvery = 15 * time.Minute
	lossesFirst = time.Minute

	// lossesWindow is how old a presence may be that still counts: older losses tell
	// little of today.
	lossesWindow = 7 * 24 * time.Hour

	// deadAfter is how long after its last word a worker counts as gone: eight
	// presences that did not come.
	deadAfter = 8 * presence.Every

	// blindFor is how long the metadata service may be silent until notices
	// cannot be relied on.
	blindFor = 30 * time.Second
)

// lossEstimate is this worker's knowledge about how VMs like its own end: the
// input of the checkpoint policy.
//
// The heartbeats do not show all losses. A worker that restarts under the same name
// overwrites its heartbeat, so only that worker knows of the loss, and only of the last
// one. Several workers on one VM count its loss and its hours several times. A worker
// without a connection to storage counts as lost until its next heartbeat arrives.
type lossEstimate struct {
	mu         sync.Mutex
	blindSince time.Time         // zero while the metadata service answers
	past       checkpoint.Losses // runs of this worker's name before this one
	fleet      checkpoint.Losses // as of the last sample
}

// blind records since when the metadata service has been silent, and with the zero time
// that it answers. It reports whether that is news.
func (f *lossEstimate) blind(since time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := f.blindSince.IsZero() != since.IsZero()
	f.blindSince = since
	return changed
}

// blindFor returns for how long the metadata service has been silent; 0 while it answers.
func (f *lossEstimate) blindFor(now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blindSince.IsZero() {
		return 0
	}
	return now.Sub(f.blindSince)
}

// Unwarned reports whether an eviction would come without a notice.
func (f *lossEstimate) Unwarned(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.blindSince.IsZero() && now.Sub(f.blindSince) >= blindFor
}

// Losses returns all that is known.
func (f *lossEstimate) Losses() checkpoint.Losses {
	f.mu.Lock()
	defer f.mu.Unlock()
	return add(f.past, f.fleet)
}

// addLastRun adds the run before this one, whose presence will be overwritten.
func (f *lossEstimate) addLastRun(last presence.Presence, now time.Time) {
	if now.Sub(last.At) > lossesWindow {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.past = lossOf(last, true)
}

// run samples the fleet from time to time until ctx ends. The claim loop learns from the
// same samples how many workers poll a queue.
func (f *lossEstimate) run(ctx context.Context, w *Worker) {
	for wait := lossesFirst; retry.Sleep(ctx, w.Jitter.Vary(wait)) == nil; {
		wait = lossesEvery
		all, err := w.fleet.Sample(ctx, 0)
		if err != nil {
			w.Log.DebugContext(ctx, "fleet not sampled; using the last sample", "error", err)
			continue
		}
		fleet := lossesOf(all.Workers, time.Now())
		f.mu.Lock()
		f.fleet = fleet
		f.mu.Unlock()
		known := f.Losses()
		w.Log.DebugContext(ctx, "fleet sampled", "workers", len(all.Workers), "watched", known.Watched, "warned", known.Warned, "sudden",
			known.Sudden)
	}
}

// lossesOf sums up the losses in a listing of presences at now.
func lossesOf(all []presence.Listed, now time.Time) checkpoint.Losses {
	var sum checkpoint.Losses
	for _, p := range all {
		if age := now.Sub(p.At); age <= lossesWindow {
			sum = add(sum, lossOf(p.Presence, age > deadAfter))
		}
	}
	return sum
}

// lossOf returns the losses of one presence: how long its worker ran and, if that is
// over, how it ended. A worker that ended in Shutdown had drained for a notice, and
// its VM was taken, unless an operator had drained it, who may have deleted the VM; a worker
// that ended in Stopped was asked to end; any other died.
func lossOf(p presence.Presence, over bool) checkpoint.Losses {
	l := checkpoint.Losses{Watched: max(p.At.Sub(p.StartedAt), 0)}
	switch {
	case !over || p.State == lifecycle.Stopped.String():
	case p.State == lifecycle.Shutdown.String():
		if !presence.Holds(p.Asked) {
			l.Warned = 1
		}
	default:
		l.Sudden = 1
	}
	return l
}

func add(a, b checkpoint.Losses) checkpoint.Losses {
	return checkpoint.Losses{Watched: a.Watched + b.Watched, Warned: a.Warned + b.Warned, Sudden: a.Sudden + b.Sudden}
}
