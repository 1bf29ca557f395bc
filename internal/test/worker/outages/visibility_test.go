package outages

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/internal/worker/intake"
	"github.com/spotworker/spotworker/job"
)

// TestVisibility: with a short visibility timeout the jobs of a dead worker continue
// soon, and a live worker keeps its jobs.
func TestVisibility(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const visibility = 6 * time.Second
		soon := func(c *worker.Config) { c.Visibility = visibility }
		work := &rig.Steps{N: 400, Each: 100 * time.Millisecond}
		b.Put("long", "steps", "")
		first := b.Start("vm_0", job.Kinds{"steps": work}, soon)
		b.WaitFor("some work", 10*time.Second, func() bool { return work.Done("long") > 0 })
		b.Start("vm_1", job.Kinds{"steps": work}, soon)
		time.Sleep(3 * visibility)
		if got := b.Record("long").Generation; got != 1 {
			t.Fatalf("claims of a job whose worker lives = %d, want 1", got)
		}
		first.Link.Cut()
		first.Term()
		died := time.Now()
		b.WaitFor("another worker", rig.DefaultVisibility, func() bool { return b.Record("long").Generation == 2 })
		if took := time.Since(died); took > visibility+intake.LongestPoll*5/4 {
			t.Errorf("death to the next claim = %s, want at most %s and one poll", took, visibility)
		}
		b.WaitDone("long", time.Minute)
	})
}
