package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/testing/race"

	"github.com/spotworker/spotworker/job"
)

// TestUnknownKindsAreQuiet: a worker logs one line a minute about messages of a kind
// that no worker has, however many there are. Their jobs are dead-lettered after the
// hour as usual.
func TestUnknownKindsAreQuiet(t *testing.T) {
	race.Skip(t)
	inBubble(t, func(t *testing.T, b *testbed) {
		const n = 60
		for i := range n {
			b.put(fmt.Sprintf("job-%d", i), "unknown", "")
		}
		p := b.start("vm_0", job.Kinds{"echo": echo})
		b.waitFor("all poison", 2*time.Hour, func() bool { return len(b.poisonMessages()) == n })
		lines, of := 0, p.log.find("message deferred")
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
