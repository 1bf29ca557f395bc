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
func (r *chaos) strike(ctx context.Context, v *vm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var incident func(context.Context, *vm)
	kills := false
	switch {
	case once(r.random, r.FreezeEvery):
		incident = r.freeze(r.random)
	case once(r.random, r.CutEvery):
		incident = r.cutOff(r.random)
	default:
		incident, kills = r.kill(r.random), true
		r.counts.kills++
	}
	r.incidents.Go(func() {
		incident(ctx, v)
		if kills {
			r.remove(v)
		} else {
			r.release(v)
		}
	})
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
		err := v.worker.Freeze()
		if errors.Is(err, errors.ErrUnsupported) {
			return // this system cannot, and the table says that there was none
		}
		if err != nil {
			r.fault("freeze %s: %v", v.name, err)
			return
		}
		r.count(&r.counts.freezes)
		sleep(ctx, length)
		if length > r.Visibility {
			r.tally.isStale(v.name)
		}
		if err := v.worker.Thaw(); err != nil {
			r.fault("thaw %s: %v", v.name, err)
		}
	}
}

// cutOff takes the requests or the replies of some calls, or the way to storage
// for a while.
func (r *chaos) cutOff(random *rand.Rand) func(context.Context, *vm) {
	how, matches, calls := random.IntN(3), drawCalls(random), random.IntN(4)+1
	length := time.Duration((0.1 + 1.9*random.Float64()) * float64(r.Visibility))
	switch how {
	case 0:
		r.counts.shut++
		return func(ctx context.Context, v *vm) {
			v.door.setShut(true)
			sleep(ctx, length)
			if length > r.Visibility {
				r.tally.isStale(v.name)
			}
			v.door.setShut(false)
		}
	case 1:
		r.counts.lostRequests++
	default:
		r.counts.lostReplies++
	}
	return func(ctx context.Context, v *vm) {
		remove := v.door.set(&trap{calls: calls, matches: matches, effect: how == 2})
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
