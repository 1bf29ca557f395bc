package realclock

import (
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// patience is how long a test waits for what takes seconds: machines may be busy.
const patience = 3 * time.Minute

// evicted is the VM of TestFleet that is evicted.
const evicted = "vm_2"

// quick makes a worker save often, and its messages visible soon after its death.
func quick(c *worker.Config) {
	c.Visibility, c.Concurrency, c.DrainBudget = rig.MinVisibility, 8, 5*time.Second
	c.Policy = checkpoint.Policy{Interval: 100 * time.Millisecond}
}

// TestFleet: two workers at a time do jobs with outputs and logs, and are
// terminated, evicted and killed. Every write keeps the rules, and each job ends once, with
// its result and all outputs.
func TestFleet(t *testing.T) {
	proof.Only(t, "it runs in real time")
	t.Parallel()
	rig.RunInRealTime(t, func(t *testing.T, b *rig.Bed) {
		rec := b.AddRecorder()
		work := &rig.Steps{N: rig.StoredSteps, Each: 100 * time.Millisecond}
		kinds := job.Kinds{
			"files":  &rig.Storing{Steps: work},
			"prints": &rig.Printing{Steps: work},
			"steps":  work,
		}
		var ids []string
		for i := range 5 {
			for kind := range kinds {
				id := fmt.Sprintf("%s-%d", kind, i)
				if ids = append(ids, id); kind == "files" {
					rec.ExpectOutputs(id, rig.StepOutputs(id))
				}
				b.Put(id, kind, "")
			}
		}
		b.Start("steady", kinds, quick)
		for i, end := range []func(*rig.Process){(*rig.Process).Kill, (*rig.Process).Stop, evict, (*rig.Process).Stop} {
			p := b.Start(fmt.Sprintf("vm_%d", i), kinds, quick)
			time.Sleep(700 * time.Millisecond)
			end(p)
		}
		b.Start("last", kinds, quick)
		for _, id := range ids {
			b.WaitDone(id, patience)
		}
		b.WaitFor("no message left", patience, func() bool { return b.MessagesLeft() == 0 })
		for _, id := range ids {
			b.CheckOutcome(t, id, checkpoint.Done)
		}
		rec.Check(t)
	})
}

// evict announces the eviction of a worker's VM, and kills it when its jobs are released.
func evict(p *rig.Process) {
	if _, err := p.Bed.Metadata.SimulateEviction(evicted); err != nil {
		p.Bed.T.Error(err)
	}
	p.Bed.WaitFor("the end of the drain", patience, p.Drained)
	p.Kill()
}

// TestRenewals: messages are renewed while their handlers run, side by side with reports and
// saves, so that each job runs once.
func TestRenewals(t *testing.T) {
	t.Parallel()
	rig.RunInRealTime(t, func(t *testing.T, b *rig.Bed) {
		rec := b.AddRecorder()
		renewals := make(chan struct{}, 1000)
		rec.Also = func(r storage.Result) {
			if r.Operation == storage.OpUpdateMessage {
				select {
				case renewals <- struct{}{}:
				default:
				}
			}
		}
		work := &rig.Steps{N: 40, Each: 100 * time.Millisecond} // longer than the visibility
		ids := b.PutSteps(16)
		b.Start("vm_0", job.Kinds{"steps": work}, quick, func(c *worker.Config) { c.Concurrency = len(ids) })
		for _, id := range ids {
			b.WaitDone(id, patience)
		}
		b.WaitFor("no message left", patience, func() bool { return b.MessagesLeft() == 0 })
		for _, id := range ids {
			if r := b.Record(id); r.Generation != 1 || work.Repeated(id) > 0 {
				t.Errorf("job %s has generation %d, %d steps repeated, want one run", id, r.Generation, work.Repeated(id))
			}
		}
		if len(renewals) < len(ids) {
			t.Errorf("renewals = %d, want at least one of each of %d messages", len(renewals), len(ids))
		}
		rec.Check(t)
	})
}
