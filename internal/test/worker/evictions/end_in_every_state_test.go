package evictions

import (
	"slices"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestEndsInEveryState sends a worker SIGTERM at the moment it enters a state, with
// and without an eviction notice just before. The worker always ends in the state
// stopped, does not recover again, and hands over all jobs.
func TestEndsInEveryState(t *testing.T) {
	for _, state := range []lifecycle.State{lifecycle.Recover, lifecycle.Resume, lifecycle.Process, lifecycle.Shutdown} {
		for _, noticed := range []bool{false, true} {
			t.Run(state.String()+map[bool]string{true: ", notice first", false: ""}[noticed], func(t *testing.T) {
				rig.Run(t, func(t *testing.T, b *rig.Bed) {
					b.PutSteps(3)
					reached := make(chan struct{}, 8)
					asked := make(chan struct{})
					at := &rig.AtState{State: state, Do: func() { reached <- struct{}{} }}
					p := b.Start("vm_0", job.Kinds{"steps": &rig.Steps{N: 100, Each: time.Second}}, rig.Observed(at))
					go func() {
						defer close(asked)
						<-reached
						if noticed {
							b.Announce("Preempt")
						}
						p.Term()
					}()
					if state == lifecycle.Shutdown { // which only a notice or a stop makes it enter
						b.Announce("Preempt")
					}
					<-asked
					select {
					case <-p.Ended:
					case <-time.After(15 * time.Second):
						t.Fatalf("worker has not ended in 15s; position %s", p.Position())
					}
					if last := at.States[len(at.States)-1]; last != lifecycle.Stopped.String() {
						t.Errorf("last state = %s, want stopped", last)
					}
					if after := at.States[slices.Index(at.States, lifecycle.Shutdown.String()):]; slices.Contains(after, lifecycle.Recover.String()) {
						t.Errorf("states from the first shutdown on = %v, want no recover", after)
					}
					for _, m := range b.Server.Messages(b.Names.Queue) {
						if !m.Visible {
							t.Errorf("message %s is invisible after the end, want all jobs handed over", m.ID)
						}
					}
				})
			})
		}
	}
}
