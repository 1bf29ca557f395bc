package outages

import (
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"

	"github.com/spotworker/spotworker/job"
)

// TestUnknownKindsAreQuiet: a worker logs one line a minute about messages of a kind
// that no worker has, however many there are. Their jobs are dead-lettered after the
// hour as usual.
func TestUnknownKindsAreQuiet(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const n = 60
		for i := range n {
			b.Put(fmt.Sprintf("job-%d", i), "unknown", "")
		}
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		b.WaitFor("all poison", 2*time.Hour, func() bool { return len(b.PoisonMessages()) == n })
		lines, of := 0, p.Log.Find("message deferred")
		for _, line := range of {
			if line["level"] == "INFO" {
				lines++
			}
		}
		if lines == 0 || lines > 2*60 || len(of) < 10*n {
			t.Errorf("%d log lines about messages requeued %d times in about an hour, want about one a minute", lines, len(of))
		}
	})
}
