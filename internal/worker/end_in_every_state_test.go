package worker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
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

// TestNoticeBeforeTheFirstPhase: the first document may announce an eviction before
// Run has begun a phase. The worker then takes no work, and ends as always.
func TestNoticeBeforeTheFirstPhase(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.putSteps(1)
		p := b.start("vm_0", job.Kinds{"steps": &steps{n: 1, each: time.Millisecond}}, func(c *Config) { c.Metadata = nil })
		p.stop()
		at := &atState{}
		c := p.Config
		c.Observer = at
		w, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		eventTarget{w}.Evict(preempt.Notice{EventID: "a", Type: "Preempt", SeenAt: now, Deadline: now.Add(10 * time.Second)})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if want := []string{"shutdown", "stopped"}; !slices.Equal(slices.Compact(at.entered), want) {
			t.Errorf("states = %v, want %v", at.entered, want)
		}
	})
}
