package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab/stage"
)

// moment is when a worker is killed.
type moment int

const (
	anyMoment moment = iota
	beforeEffect
	afterEffect
	moments // how many there are
)

// kill kills a worker: at any moment, or before or after one of its calls takes
// effect.
func (r *chaos) kill(random *rand.Rand) func(context.Context, *vm) {
	when, matches, skip := moment(random.IntN(int(moments))), drawCalls(random), random.IntN(matchingCalls)
	if r.config.AnyMoment {
		when = anyMoment
	}
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
	// groupEvery is how many kills there are for one of several VMs at once.
	groupEvery = 10

	// groupSize is how many they are, at most.
	groupSize = 4
)

// killGroup kills several workers at once, and then starts their replacements
// together: they share the parent of their scratch folders. The caller holds r.mu.
func (r *chaos) killGroup(random *rand.Rand) func(context.Context, *vm) {
	var more []*vm
	for _, i := range random.Perm(len(r.present)) {
		if v := r.present[i]; !v.busy && len(more) < groupSize-1 {
			v.busy = true
			r.recorder.IncidentBegins(v.Name)
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

// callWait is how long an incident waits for a call that matches.
const callWait = time.Second

// killAtCall kills a worker at its next call that matches, or after callWait.
func (r *chaos) killAtCall(ctx context.Context, v *vm, when moment, matches func(stage.Call) bool) {
	end := sync.OnceFunc(func() { r.end(v) }) // a second caller waits for the first
	injected := make(chan struct{})
	fault := stage.ResetRequest
	if when == afterEffect {
		fault = stage.ResetReply
	}
	remove := v.Proxy.Inject(&stage.Injection{Calls: 1, Fault: fault, Matches: matches, Injected: func() {
		end()
		close(injected)
	}})
	timer := time.NewTimer(callWait)
	defer timer.Stop()
	select {
	case <-injected:
	case <-timer.C:
	case <-ctx.Done():
	}
	if remove() {
		end() // no such call came
		return
	}
	<-injected
	if when == beforeEffect {
		r.count(&r.counts.beforeCall)
	} else {
		r.count(&r.counts.afterCall)
	}
}

// nth skips some calls that match, and matches the next one. It is not safe for
// concurrent use.
func nth(skip int, matches func(stage.Call) bool) func(stage.Call) bool {
	return func(c stage.Call) bool {
		if !matches(c) {
			return false
		}
		skip--
		return skip < 0
	}
}

// matchingCalls is how many calls that match a kill chooses from.
const matchingCalls = 4

// drawCalls draws which calls match.
func drawCalls(random *rand.Rand) func(stage.Call) bool {
	wanted := []stage.Operation{stage.RecordWrite, stage.RecordWrite, stage.MessageDelete, stage.MessageUpdate, stage.MessageClaim,
		stage.OtherCall}[random.IntN(6)]
	return func(c stage.Call) bool { return wanted == stage.OtherCall || c.Operation == wanted }
}

// end kills a worker.
func (r *chaos) end(v *vm) {
	r.recorder.Killed(v.Name)
	v.Worker.Kill()
}
