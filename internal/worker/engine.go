package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/haste"
	"github.com/spotworker/spotworker/internal/presence"
	"github.com/spotworker/spotworker/internal/queue"
)

// engine runs jobs from the moment it is started until it is drained. What it
// learns about the service's pace, and what it counts, outlives a drain that
// was for nothing.
type engine struct {
	Config
	owner      string    // the worker's name, as records show it
	machine    string    // the part of it that all workers of this machine have
	started    time.Time // when the process began to work
	pace       *pace
	gate       *drain.Gate
	latency    haste.Latency // of storage's answers to small calls
	quarantine chan struct{} // holds one: the suspect that is running

	// payloadMemory bounds the bytes of the payloads that came from blobs.
	payloadMemory *semaphore.Weighted

	kindLimits kindLimits
	breakers   breakers
	running    *runningJobs
	departure  *drain.Departure
	leave      func() // begins the drain for the departure
	drains     *drain.Set
	mover      mover
	losses     *lossEstimate
	fleet      *fleet
	deferred   spacing
	active     *registry
	tally      tally
	putBacks   logLimit // lines about messages that were put back
	loops      loops
	report     func(presence.Drain) // keeps how a drain ended for the heartbeat
}

// tally counts how deliveries ended, for the log of a drain.
type tally struct {
	committed, released, leftOut atomic.Int64
}

// newEngine returns the engine of w, whose name is owner.
func newEngine(w *Worker, owner string) *engine {
	return &engine{
		Config: w.Config, owner: owner, machine: machineOf(owner), started: w.heartbeat.started, pace: newPace(w.Visibility), gate: drain.NewGate(drain.Parallel), quarantine: make(chan struct{}, 1), payloadMemory: semaphore.NewWeighted(w.PayloadMemory),
		kindLimits: newKindLimits(w.Kinds), active: newRegistry(),
		running: w.running, departure: w.departure, leave: w.events.Leave, drains: &w.drains, losses: w.losses, fleet: w.fleet, loops: w.loops,
		report: w.heartbeat.keepDrain,
	}
}

// run claims and runs jobs until ctx ends, whose cause is a [*drain], and
// returns when everything is released or the drain's time is over.
func (e *engine) run(ctx context.Context) {
	var running sync.WaitGroup
	var before counts
	stopped := make(chan struct{})
	// Not after the claim loop: that may take a second to see the stop, and
	// jobs are released meanwhile.
	context.AfterFunc(ctx, func() {
		defer close(stopped)
		before = e.counts()
		e.loops.drain(drain.Of(ctx), time.Now())
		e.logStop(ctx, before.inHand)
	})
	e.claimLoop(ctx, &running)
	<-stopped
	running.Wait()
	e.logDrained(ctx, before)
}

func (e *engine) logStop(ctx context.Context, jobs int) {
	if d := drain.Of(ctx); d != nil {
		e.Log.InfoContext(ctx, "work stopped", "reason", d.Error(), "jobs", jobs,
			"since_notice", time.Since(d.Seen), "budget", d.End().Sub(d.Seen))
	}
}

func (e *engine) logDrained(ctx context.Context, before counts) {
	d := drain.Of(ctx)
	if d == nil {
		return
	}
	now := e.counts()
	e.Observer.Drained(string(d.Reason), time.Since(d.Seen))
	e.report(presence.Drain{
		Reason: string(d.Reason), EndedAt: time.Now(), Took: time.Since(d.Seen), Budget: d.End().Sub(d.Seen), Jobs: before.inHand,
		Released: int(now.released - before.released), Done: int(now.committed - before.committed),
		LeftOut: int(now.leftOut - before.leftOut), Left: now.inHand,
	})
	e.Log.InfoContext(ctx, "drained", "jobs", before.inHand,
		"released", now.released-before.released, "committed", now.committed-before.committed,
		"states_left_out", now.leftOut-before.leftOut, "still_in_hand", now.inHand,
		"since_notice", time.Since(d.Seen), "budget", d.End().Sub(d.Seen))
}

// counts is a tally at one moment.
type counts struct {
	inHand                       int
	committed, released, leftOut int64
}

func (e *engine) counts() counts {
	return counts{
		inHand:    len(e.active.jobs()),
		committed: e.tally.committed.Load(), released: e.tally.released.Load(), leftOut: e.tally.leftOut.Load(),
	}
}

// releaseAll gives back messages whose jobs were not begun.
func (e *engine) releaseAll(ctx context.Context, leases []*queue.Lease) {
	var group errgroup.Group
	group.SetLimit(drain.Parallel)
	for _, lease := range leases {
		group.Go(func() error {
			if err := lease.Release(ctx, 0); err != nil {
				e.Log.WarnContext(ctx, "message not released; it comes back by itself", "message_id", lease.ID, "error", err)
			}
			return nil
		})
	}
	_ = group.Wait() // its functions return no error
}
