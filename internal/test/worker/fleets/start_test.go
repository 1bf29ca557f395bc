package fleets

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// TestRoundTripsOfAStart: a start makes its calls at once as far as none needs the reply to
// another one. Each call takes 10 ms, so the time to the first claim is the number of
// round trips in a row.
func TestRoundTripsOfAStart(t *testing.T) {
	const each = 10 * time.Millisecond
	withoutMetadata := func(c *worker.Config) { c.Metadata = nil }
	for name, tt := range map[string]struct {
		shards int
		change func(*worker.Config)
		want   int
	}{
		"without a metadata service": {0, withoutMetadata, 2}, // checks and reads, claim
		"with one":                   {0, nil, 3},             // the VM's name before them
		"eight queues":               {8, withoutMetadata, 3}, // the queues after their number
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				if tt.shards > 0 {
					b.UseShards(queue.ShardCounts{Put: tt.shards, Taken: tt.shards})
				}
				claimed := make(chan time.Time, 100)
				b.Server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: each} })
				b.Server.OnResult(func(r storage.Result) {
					if r.Operation == storage.OpGetMessages {
						select {
						case claimed <- time.Now():
						default:
						}
					}
				})
				b.Metadata.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Delay: each} })
				begun := time.Now()
				b.Start("vm_0", job.Kinds{"echo": rig.Echo}, tt.change)
				took := (<-claimed).Sub(begun)
				t.Logf("start to first claim, 10 ms a call: %s", took.Round(time.Millisecond))
				if got := int(took.Round(each) / each); got != tt.want {
					t.Errorf("first claim after %s, that is %d round trips in a row, want %d", took, got, tt.want)
				}
			})
		})
	}
}
