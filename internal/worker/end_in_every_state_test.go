package worker

import (
	"slices"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/job"
)

// atState is an Observer that does something when the worker enters a state.
type atState struct {
	unobserved
	state   string
	do      func()
	entered []string // all states so far
}

func (a *atState) Entered(state string, _ bool) {
	a.entered = append(a.entered, state)
	if state == a.state {
		a.do()
	}
}

// TestEndsInEveryState sends a worker SIGTERM at the moment it enters a state, with
// and without an eviction notice just before. The worker always ends in the state
// stopped, does not recover again, and hands over all jobs.
func TestEndsInEveryState(t *testing.T) {
	for _, state := range []lifecycle.State{lifecycle.Recover, lifecycle.Resume, lifecycle.Process, lifecycle.Shutdown} {
		for _, noticed := range []bool{false, true} {
			t.Run(state.String()+map[bool]string{true: ", notice first", false: ""}[noticed], func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *testbed) {
					b.putSteps(3)
					reached := make(chan struct{}, 8)
					asked := make(chan struct{})
					at := &atState{state: state.String(), do: func() { reached <- struct{}{} }}
					p := b.start("vm_0", job.Kinds{"steps": &steps{n: 100, each: time.Second}}, withObserver(at))
					go func() {
						defer close(asked)
						<-reached
						if noticed {
							b.announce("Preempt")
						}
						p.term()
					}()
					if state == lifecycle.Shutdown { // which only a notice or a stop makes it enter
						b.announce("Preempt")
					}
					<-asked
					select {
					case <-p.ended:
					case <-time.After(15 * time.Second):
						t.Fatalf("worker has not ended in 15s; position %s", p.machine.Position())
					}
					if last := at.entered[len(at.entered)-1]; last != lifecycle.Stopped.String() {
						t.Errorf("last state = %s, want stopped", last)
					}
					if after := at.entered[slices.Index(at.entered, lifecycle.Shutdown.String()):]; slices.Contains(after, lifecycle.Recover.String()) {
						t.Errorf("states from the first shutdown on = %v, want no recover", after)
					}
					for _, m := range b.server.Messages(b.names.Queue) {
						if !m.Visible {
							t.Errorf("message %s is invisible after the end, want all jobs handed over", m.ID)
						}
					}
				})
			})
		}
	}
}
