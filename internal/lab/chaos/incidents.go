package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/spotworker/spotworker/internal/lab/stage"
	"github.com/spotworker/spotworker/internal/retry"
)

// pollInterval is the time between two looks at the messages of workers.
const pollInterval = 20 * time.Millisecond

// patience is how long a run continues without an incident before it fails.
const patience = 2 * time.Minute

var errStuck = errors.New("no worker held a message for 2 minutes")

// play lets incidents happen until there were enough of them.
func (r *chaos) play(ctx context.Context) error {
	last, reported := time.Now(), time.Now()
	for !r.enough() {
		pause := time.Duration(float64(time.Second) / r.config.PerSecond)
		if v := r.victim(); v == nil {
			pause = pollInterval
		} else {
			last = time.Now()
			r.strike(ctx, v)
		}
		if time.Since(last) > patience {
			return errStuck
		}
		if time.Since(reported) > time.Minute {
			reported = time.Now()
			r.sayProgress()
		}
		if retry.Sleep(ctx, pause) != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (r *chaos) enough() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.config.Kills > 0 && r.counts.kills >= r.config.Kills || r.config.For > 0 && time.Since(r.began) >= r.config.For
}

func (r *chaos) sayProgress() {
	r.mu.Lock()
	kills := r.counts.kills
	r.mu.Unlock()
	r.narrator.Say("%d kills, %d jobs without an outcome.", kills, r.recorder.Waiting())
}

// strike starts an incident of a VM and does not wait for its end. All random
// numbers are drawn here, by one goroutine, so that a seed repeats them. Each
// incident releases or removes its VMs when it ends.
func (r *chaos) strike(ctx context.Context, v *vm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorder.IncidentBegins(v.Name)
	var incident func(context.Context, *vm)
	switch {
	case once(r.random, r.config.FreezeEvery):
		incident = r.freeze(r.random)
	case once(r.random, r.config.EvictEvery):
		incident = r.evict(r.random)
	case once(r.random, r.config.CutEvery):
		incident = r.cutOff(r.random)
	case once(r.random, groupEvery):
		incident = r.killGroup(r.random)
	default:
		incident = r.kill(r.random)
		r.counts.kills++
	}
	r.incidents.Go(func() { incident(ctx, v) })
}

// once is true one time in n, and never if n is 0.
func once(random *rand.Rand, n int) bool { return n > 0 && random.IntN(n) == 0 }

// count increments a counter of the run.
func (r *chaos) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

// freeze suspends a worker for up to three times the visibility timeout of its
// messages.
func (r *chaos) freeze(random *rand.Rand) func(context.Context, *vm) {
	length := time.Duration((0.2 + 2.8*random.Float64()) * float64(r.config.Visibility))
	return func(ctx context.Context, v *vm) {
		defer r.release(v)
		err := v.Worker.Freeze()
		if errors.Is(err, errors.ErrUnsupported) {
			return // this system cannot; the table shows that there was none
		}
		if err != nil {
			r.fault("freeze %s: %v", v.Name, err)
			return
		}
		r.count(&r.counts.freezes)
		r.recorder.Frozen(v.Name)
		_ = retry.Sleep(ctx, length)
		if length > r.config.Visibility {
			r.recorder.BecameStale(v.Name)
		}
		if err := v.Worker.Thaw(); err != nil {
			r.fault("thaw %s: %v", v.Name, err)
		}
	}
}

// maxDelay is the longest delay of a call: longer than the time between two
// renewals, so that a late call finds a message or a record that has changed.
func maxDelay(visibility time.Duration) time.Duration { return visibility * 3 / 2 }

// cutOff injects a fault into some calls of a VM, or cuts it off from storage for a
// while.
func (r *chaos) cutOff(random *rand.Rand) func(context.Context, *vm) {
	how, matches, calls := stage.Fault(random.IntN(int(stage.Faults)+1)), drawCalls(random), random.IntN(4)+1
	length := time.Duration((0.1 + 1.9*random.Float64()) * float64(r.config.Visibility))
	delay := time.Duration(random.Int64N(int64(maxDelay(r.config.Visibility))))
	r.counts.cuts[how]++
	if how == stage.Faults {
		return func(ctx context.Context, v *vm) {
			defer r.release(v)
			v.Proxy.SetCutOff(true)
			_ = retry.Sleep(ctx, length)
			if length > r.config.Visibility {
				r.recorder.BecameStale(v.Name)
			}
			v.Proxy.SetCutOff(false)
		}
	}
	return func(ctx context.Context, v *vm) {
		defer r.release(v)
		remove := v.Proxy.Inject(&stage.Injection{Calls: calls, Matches: matches, Fault: how, Delay: delay})
		_ = retry.Sleep(ctx, callWait)
		remove()
	}
}

// evictionEnd is how an announced eviction ends.
type evictionEnd int

const (
	evictedAfterDrain evictionEnd = iota // the VM is removed once its worker has drained, or when the time is up
	evictedEarly                         // it is removed before that
	withdrawn                            // the platform withdraws the event
	evictionEnds                         // how many there are
)

const (
	// handOverLimit is how long a worker may take to release everything: until it
	// sees the notice, and then the budget of its drain.
	handOverLimit = 12 * time.Second

	// earlyLimit is the longest time from the notice to an early removal.
	earlyLimit = 1500 * time.Millisecond

	// leastStay is the shortest time from the notice to a removal that is not
	// early, so that the worker sees the notice.
	leastStay = 1500 * time.Millisecond
)

// evict announces an eviction at the metadata service, and removes the VM or
// withdraws the event.
func (r *chaos) evict(random *rand.Rand) func(context.Context, *vm) {
	how, early := evictionEnd(random.IntN(int(evictionEnds))), time.Duration(random.Int64N(int64(earlyLimit)))
	back := time.Duration(random.Int64N(int64(2 * earlyLimit)))
	return func(ctx context.Context, v *vm) {
		id, err := r.stage.Local.Metadata.SimulateEviction(v.Name)
		if err != nil {
			r.fault("evict %s: %v", v.Name, err)
			return
		}
		r.count(&r.counts.evictions)
		if how == withdrawn {
			_ = retry.Sleep(ctx, back)
			r.stage.Local.Metadata.Withdraw(id)
			r.count(&r.counts.withdrawn)
			r.release(v)
			return
		}
		if how == evictedEarly {
			_ = retry.Sleep(ctx, early)
		} else if !r.awaitHandOver(ctx, v) && ctx.Err() == nil {
			r.count(&r.counts.notHandedOver)
		}
		r.end(v)
		r.stage.Local.Metadata.Complete(id)
		r.remove(v)
	}
}

// awaitHandOver waits until a worker with a notice holds no message, and reports
// whether that was in time.
func (r *chaos) awaitHandOver(ctx context.Context, v *vm) bool {
	if retry.Sleep(ctx, leastStay) != nil {
		return false
	}
	for end := time.Now().Add(handOverLimit - leastStay); time.Now().Before(end); {
		if r.recorder.Held(v.Name) == 0 {
			return true
		}
		if retry.Sleep(ctx, pollInterval) != nil {
			return false
		}
	}
	return false
}
