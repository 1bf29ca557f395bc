package fleets

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// TestPayloadMemory: jobs whose payloads from blobs do not fit into memory
// together run one after another. A drain releases a waiting job at once, and a
// payload that its handler has dropped no longer uses memory.
func TestPayloadMemory(t *testing.T) {
	const size, jobs = queue.MaxPayload/2 + 1, 3 // two do not fit into the smallest memory
	for _, row := range []struct {
		name string
		drop bool
		most int
	}{
		{"held to the end", false, 1},
		{"dropped at the start", true, jobs},
	} {
		t.Run(row.name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				data := bytes.Repeat([]byte("x"), size)
				for i := range jobs {
					b.PutLarge(fmt.Sprintf("job-%d", i), "hold", data)
				}
				held := &atOnce{each: time.Minute}
				handler := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
					if len(j.Payload) != size {
						t.Errorf("payload has %d bytes, want %d", len(j.Payload), size)
					}
					if row.drop {
						j.DropPayload()
					}
					return held.Run(ctx, j)
				})
				p := b.Start("vm_0", job.Kinds{"hold": handler}, func(c *worker.Config) { c.PayloadMemory = queue.MaxPayload })
				time.Sleep(30 * time.Second)
				if most, _ := held.counts(); most != row.most {
					t.Errorf("jobs at once = %d, want %d", most, row.most)
				}
				if !row.drop && len(p.Log.Find("job waits for memory: the payloads of other jobs take all of it")) == 0 {
					t.Error("no line says that a job waits for memory")
				}
				begun := time.Now()
				p.Stop()
				if took := time.Since(begun); took > time.Second {
					t.Errorf("drain with waiting jobs took %s, want at most 1s", took)
				}
				b.Start("vm_1", job.Kinds{"hold": handler}, func(c *worker.Config) { c.PayloadMemory = queue.MaxPayload })
				b.WaitFor("all done", 10*time.Minute, func() bool { return b.MessagesLeft() == 0 })
				for i := range jobs {
					if r := b.Record(fmt.Sprintf("job-%d", i)); r.Status != checkpoint.Done || r.Failures+r.ChargedExits != 0 {
						t.Errorf("record of job-%d = %+v, want done without a failure", i, r)
					}
				}
			})
		})
	}
}
