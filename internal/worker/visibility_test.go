package worker

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/job"
)

// TestVisibility: with a short visibility timeout the jobs of a dead worker continue
// soon, and a live worker keeps its jobs.
func TestVisibility(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		const visibility = 6 * time.Second
		soon := func(c *Config) { c.Visibility = visibility }
		work := &steps{n: 400, each: 100 * time.Millisecond}
		b.put("long", "steps", "")
		first := b.start("vm_0", job.Kinds{"steps": work}, soon)
		b.waitFor("some work", 10*time.Second, func() bool { return work.done("long") > 0 })
		b.start("vm_1", job.Kinds{"steps": work}, soon)
		time.Sleep(3 * visibility)
		if got := b.record("long").Generation; got != 1 {
			t.Fatalf("claims of a job whose worker lives = %d, want 1", got)
		}
		first.link.cut()
		first.term()
		died := time.Now()
		b.waitFor("another worker", defaultVisibility, func() bool { return b.record("long").Generation == 2 })
		if took := time.Since(died); took > visibility+longestPoll*5/4 {
			t.Errorf("death to the next claim = %s, want at most %s and one poll", took, visibility)
		}
		b.waitDone("long", time.Minute)
	})
}
