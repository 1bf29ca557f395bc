package chaos

import (
	"context"
	"math/rand/v2"
	"time"
)

// ending is how an announced eviction ends.
type ending int

const (
	takenWhenDone ending = iota // the VM is gone once its worker has handed over, or when the time is up
	takenEarly                  // it is gone in the middle of that
	withdrawn                   // the platform changes its mind
	endings                     // how many there are
)

const (
	// handOverLimit is how long a worker may take to hand everything over: to see
	// the notice, and then the budget of its drain.
	handOverLimit = 12 * time.Second

	// earlyLimit is how long after its notice a VM is gone early at the latest.
	earlyLimit = 1500 * time.Millisecond

	// leastStay is how long a VM stays at least that is not gone early, so that
	// its worker sees the notice.
	leastStay = 1500 * time.Millisecond
)

// evict announces an eviction at the metadata service, and takes the VM away or
// withdraws the notice.
func (r *chaos) evict(random *rand.Rand) func(context.Context, *vm) {
	how, early := ending(random.IntN(int(endings))), time.Duration(random.Int64N(int64(earlyLimit)))
	back := time.Duration(random.Int64N(int64(2 * earlyLimit)))
	return func(ctx context.Context, v *vm) {
		id, err := r.local.Metadata.SimulateEviction(v.name)
		if err != nil {
			r.fault("evict %s: %v", v.name, err)
			return
		}
		r.count(&r.counts.evictions)
		if how == withdrawn {
			sleep(ctx, back)
			r.local.Metadata.Withdraw(id)
			r.count(&r.counts.withdrawn)
			r.release(v)
			return
		}
		if how == takenEarly {
			sleep(ctx, early)
		} else if !r.awaitHandOver(ctx, v) && ctx.Err() == nil {
			r.count(&r.counts.notHandedOver)
		}
		r.end(v)
		r.local.Metadata.Complete(id)
		r.remove(v)
	}
}

// awaitHandOver waits until a worker that was told of its eviction has nothing in
// hand, and reports whether that was in time.
func (r *chaos) awaitHandOver(ctx context.Context, v *vm) bool {
	if !sleep(ctx, leastStay) {
		return false
	}
	for end := time.Now().Add(handOverLimit - leastStay); time.Now().Before(end); {
		if r.tally.inHand(v.name) == 0 {
			return true
		}
		if !sleep(ctx, noVictim) {
			return false
		}
	}
	return false
}
