package hostile

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/checkpoint/runs"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestPutAgain: a job that its owner puts again runs once more, with the payload that it has in a
// blob. Messages of the run before, which become visible before and while it runs, start nothing,
// end nothing and take no payload away.
func TestPutAgain(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		payload := []byte(strings.Repeat("frame ", 20<<10))
		old, err := b.Payloads.Offload(t.Context(), queue.Envelope{ID: "a", Kind: "k", Payload: queue.BytesPayload(payload), ChosenID: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, delay := range []time.Duration{0, 20 * time.Second, 50 * time.Second} {
			if err := b.Queue.Put(t.Context(), old, delay); err != nil {
				t.Fatal(err)
			}
			old.Resume = true // as of a second put
		}
		ran := 0
		kinds := job.Kinds{"k": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			ran++
			select {
			case <-time.After(time.Duration(ran-1) * time.Minute):
				return j.Payload[:5], nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})}
		first := b.Start("vm_0", kinds)
		b.WaitDone("a", 10*time.Second)
		first.Stop()
		time.Sleep(20 * time.Second)

		p := &producer.Producer{Queue: b.Jobs, Payloads: b.Payloads, Records: b.Records, Name: "owner@desk", Again: true}
		sum, err := p.Run(t.Context(), func(yield func(producer.Spec, error) bool) {
			yield(producer.Spec{ID: "a", Kind: "k", Payload: queue.BytesPayload(payload)}, nil)
		})
		if err != nil || sum.Put != 1 {
			t.Fatalf("put again = %+v, %v", sum, err)
		}
		b.Start("vm_1", kinds)
		b.WaitFor("the new run", 10*time.Minute, func() bool { return b.MessagesLeft() == 0 })

		r := b.Record("a")
		var outcomes []runs.Outcome
		for _, run := range r.Runs.Runs() {
			outcomes = append(outcomes, run.Outcome)
		}
		if r.Status != checkpoint.Done || ran != 2 || !slices.Equal(outcomes, []runs.Outcome{runs.Done, runs.Again, runs.Done}) {
			t.Errorf("record = %+v after %d runs with outcomes %q, want the second one's", r, ran, outcomes)
		}
		if poison, blobs := b.PoisonMessages(), b.Server.Blobs(b.Names.Payloads); len(poison) > 0 || len(blobs) > 0 {
			t.Errorf("poison messages = %+v, payloads = %+v, want none left", poison, blobs)
		}
	})
}
