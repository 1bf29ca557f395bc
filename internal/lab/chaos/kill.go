package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// moment is when a worker is killed.
type moment int

const (
	anyMoment moment = iota
	beforeEffect
	afterEffect
	moments // how many there are
)

// kill ends a worker without a word: at any moment, or before or after one of its
// calls takes effect.
func (r *chaos) kill(random *rand.Rand) func(context.Context, *vm) {
	when, matches, skip := moment(random.IntN(int(moments))), drawCalls(random), random.IntN(trapTries)
	return func(ctx context.Context, v *vm) {
		if when == anyMoment {
			r.end(v)
		} else {
			r.killAtCall(ctx, v, when, nth(skip, matches))
		}
		r.remove(v)
	}
}

const (
	// groupEvery is of how many kills one hits several VMs at once.
	groupEvery = 10

	// groupSize is how many they are, at most.
	groupSize = 4
)

// killGroup ends several workers at once, and then starts those in their places
// together: they share the parent of their scratch folders. r.mu is held.
func (r *chaos) killGroup(random *rand.Rand) func(context.Context, *vm) {
	var more []*vm
	for _, i := range random.Perm(len(r.present)) {
		if v := r.present[i]; !v.busy && len(more) < groupSize-1 {
			v.busy = true
			r.tally.troubled(v.name)
			more = append(more, v)
		}
	}
	r.counts.kills += 1 + len(more)
	r.counts.groups++
	return func(_ context.Context, v *vm) {
		group := slices.Concat(more, []*vm{v})
		var each sync.WaitGroup
		for _, v := range group {
			each.Go(func() { r.end(v) })
		}
		each.Wait()
		for _, v := range group {
			each.Go(func() { r.remove(v) })
		}
		each.Wait()
	}
}

// trapLimit is how long a kill waits for the call that it is drawn for.
const trapLimit = time.Second

// killAtCall ends a worker at its next call of a sort, or after trapLimit.
func (r *chaos) killAtCall(ctx context.Context, v *vm, when moment, matches func(call) bool) {
	end := sync.OnceFunc(func() { r.end(v) }) // whoever comes second waits for the first
	sprung := make(chan struct{})
	fault := resetRequest
	if when == afterEffect {
		fault = resetReply
	}
	remove := v.door.set(&trap{calls: 1, fault: fault, matches: matches, sprung: func() {
		end()
		close(sprung)
	}})
	timer := time.NewTimer(trapLimit)
	defer timer.Stop()
	select {
	case <-sprung:
	case <-timer.C:
	case <-ctx.Done():
	}
	if remove() {
		end() // no such call came
		return
	}
	<-sprung
	if when == beforeEffect {
		r.count(&r.counts.beforeCall)
	} else {
		r.count(&r.counts.afterCall)
	}
}

// nth passes over some calls that match, and is for the one behind them. It is
// asked about one call at a time.
func nth(skip int, matches func(call) bool) func(call) bool {
	return func(c call) bool {
		if !matches(c) {
			return false
		}
		skip--
		return skip < 0
	}
}

// trapTries is of how many matching calls a kill takes one.
const trapTries = 4

// drawCalls draws which calls an incident is for.
func drawCalls(random *rand.Rand) func(call) bool {
	wanted := []operation{recordWrite, recordWrite, messageDelete, messageUpdate, messageClaim, otherCall}[random.IntN(6)]
	return func(c call) bool { return wanted == otherCall || c.operation == wanted }
}

// end kills a worker.
func (r *chaos) end(v *vm) {
	r.tally.killed(v.name)
	v.worker.Kill()
}
