package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// noVictim is how long to wait when no worker has work in its hands.
const noVictim = 20 * time.Millisecond

// patience is how long a run goes on without an incident before it gives up.
const patience = 2 * time.Minute

var errStuck = errors.New("no worker had work in its hands for 2 minutes")

// play lets incidents happen until there were enough of them.
func (r *chaos) play(ctx context.Context) error {
	last, told := time.Now(), time.Now()
	for !r.enough() {
		pause := time.Duration(float64(time.Second) / r.PerSecond)
		if v := r.victim(); v == nil {
			pause = noVictim
		} else {
			last = time.Now()
			r.strike(ctx, v)
		}
		if time.Since(last) > patience {
			return errStuck
		}
		if time.Since(told) > time.Minute {
			told = time.Now()
			r.tell()
		}
		if !sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (r *chaos) enough() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Kills > 0 && r.counts.kills >= r.Kills || r.For > 0 && time.Since(r.began) >= r.For
}

func (r *chaos) tell() {
	r.mu.Lock()
	kills := r.counts.kills
	r.mu.Unlock()
	r.say("%d kills, %d jobs under way.", kills, r.tally.waiting())
}

// strike lets something happen to a VM. It does not wait for its end. All that is
// left to chance is drawn here, by one goroutine, so that a seed says it again.
// Each incident releases or removes its VMs when it is over.
func (r *chaos) strike(ctx context.Context, v *vm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.troubled(v.name)
	var incident func(context.Context, *vm)
	switch {
	case once(r.random, r.FreezeEvery):
		incident = r.freeze(r.random)
	case once(r.random, r.EvictEvery):
		incident = r.evict(r.random)
	case once(r.random, r.CutEvery):
		incident = r.cutOff(r.random)
	case once(r.random, groupEvery):
		incident = r.killGroup(r.random)
	default:
		incident = r.kill(r.random)
		r.counts.kills++
	}
	r.incidents.Go(func() { incident(ctx, v) })
}

// once is true one time in n, and never with 0.
func once(random *rand.Rand, n int) bool { return n > 0 && random.IntN(n) == 0 }

// count adds one to a number of the run's.
func (r *chaos) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

// freeze stops a worker for up to three times the visibility of its messages, and
// lets it go on.
func (r *chaos) freeze(random *rand.Rand) func(context.Context, *vm) {
	length := time.Duration((0.2 + 2.8*random.Float64()) * float64(r.Visibility))
	return func(ctx context.Context, v *vm) {
		defer r.release(v)
		err := v.worker.Freeze()
		if errors.Is(err, errors.ErrUnsupported) {
			return // this system cannot, and the table says that there was none
		}
		if err != nil {
			r.fault("freeze %s: %v", v.name, err)
			return
		}
		r.count(&r.counts.freezes)
		r.tally.stands(v.name)
		sleep(ctx, length)
		if length > r.Visibility {
			r.tally.isStale(v.name)
		}
		if err := v.worker.Thaw(); err != nil {
			r.fault("thaw %s: %v", v.name, err)
		}
	}
}

// maxDelay is how long a call is delayed at most: longer than a worker waits with
// its next renewal, so that a late call meets a message or a record that changed.
func maxDelay(visibility time.Duration) time.Duration { return visibility * 3 / 2 }

// cutOff has the proxy of a VM do something to some of its calls, or takes the way
// to storage for a while.
func (r *chaos) cutOff(random *rand.Rand) func(context.Context, *vm) {
	how, matches, calls := fault(random.IntN(int(faults)+1)), drawCalls(random), random.IntN(4)+1
	length := time.Duration((0.1 + 1.9*random.Float64()) * float64(r.Visibility))
	delay := time.Duration(random.Int64N(int64(maxDelay(r.Visibility))))
	r.counts.cuts[how]++
	if how == faults {
		return func(ctx context.Context, v *vm) {
			defer r.release(v)
			v.door.setShut(true)
			sleep(ctx, length)
			if length > r.Visibility {
				r.tally.isStale(v.name)
			}
			v.door.setShut(false)
		}
	}
	return func(ctx context.Context, v *vm) {
		defer r.release(v)
		remove := v.door.set(&trap{calls: calls, matches: matches, fault: how, delay: delay})
		sleep(ctx, trapLimit)
		remove()
	}
}

// sleep waits for d and reports true, or false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
