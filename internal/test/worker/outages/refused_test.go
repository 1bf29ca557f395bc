package outages

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// leaseBlob acquires a lease without an end on a blob. release breaks it.
func leaseBlob(b *rig.Bed, container, name string) (release func()) {
	b.T.Helper()
	blob := b.Account(b.Server.Transport()).Container(container).NewBlockBlobClient(name)
	l, err := lease.NewBlobClient(blob, nil)
	if err != nil {
		b.T.Fatal(err)
	}
	if _, err := l.AcquireLease(b.T.Context(), -1, nil); err != nil {
		b.T.Fatal(err)
	}
	return func() {
		if _, err := l.BreakLease(b.T.Context(), &lease.BlobBreakOptions{BreakPeriod: new(int32(0))}); err != nil {
			b.T.Error(err)
		}
	}
}

// putOpen enqueues a job whose record is open, as after a failure.
func putOpen(b *rig.Bed, id, kind string) {
	b.T.Helper()
	e := queue.Envelope{ID: id, Kind: kind, Resume: true}
	c := b.Records.Fresh(checkpoint.Delivery{ID: id, Kind: kind, PayloadHash: e.Payload.Hash(), MessageID: "old"}, "test")
	if err := c.Fail(b.T.Context(), checkpoint.Snapshot{}, "no"); err != nil {
		b.T.Fatal(err)
	}
	if err := b.Queue.Put(b.T.Context(), e, 0); err != nil {
		b.T.Fatal(err)
	}
}

// TestPermanentlyRefused: storage refuses the records or payloads of more jobs than
// there are slots. Other jobs are done beside them. The refused ones are tried a few
// times an hour, nothing of them is lost or counted, and they are done once storage
// accepts them.
func TestPermanentlyRefused(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	const refused, healthy = 8, 40
	big := bytes.Repeat([]byte("x"), 100<<10)
	cases := map[string]struct {
		code string
		// begin enqueues a job that storage refuses until end is called.
		begin func(b *rig.Bed, id string) (end func())
	}{
		"a lease on the record": {"LeaseIdMissing", func(b *rig.Bed, id string) func() {
			putOpen(b, id, "echo")
			return leaseBlob(b, b.Names.Records, jobid.Path(id))
		}},
		"an archived payload": {"BlobArchived", func(b *rig.Bed, id string) func() {
			b.PutLarge(id, "echo", big)
			return refuse(b, storage.OpGetBlob, &storage.Error{Status: 409, Code: "BlobArchived", Message: "archived"})
		}},
		"a payload that cannot be deleted": {"BlobImmutableDueToPolicy", func(b *rig.Bed, id string) func() {
			b.PutLarge(id, "echo", big)
			return refuse(b, storage.OpDeleteBlob, &storage.Error{Status: 409, Code: "BlobImmutableDueToPolicy", Message: "immutable"})
		}},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				var ends []func()
				for i := range refused {
					ends = append(ends, tt.begin(b, fmt.Sprintf("refused-%d", i)))
				}
				for i := range healthy {
					b.Put(fmt.Sprintf("healthy-%d", i), "steps", "")
				}
				c := &rig.Counter{}
				kinds := job.Kinds{"echo": rig.Echo, "steps": &rig.Steps{N: 1, Each: time.Second}}
				for i := range 2 {
					b.Start(fmt.Sprintf("vm_%d", i), kinds, rig.Observed(c), func(c *worker.Config) { c.Concurrency = 2 })
				}
				begun := time.Now()
				b.WaitFor("healthy jobs done", 2*time.Minute, func() bool { return b.MessagesLeft() == refused })
				t.Logf("%d healthy jobs beside %d refused ones took %s", healthy, refused, time.Since(begun).Round(time.Second))
				time.Sleep(time.Hour)
				before := b.Server.Counts()[storage.OpGetMessages]
				rounds := c.Of("refused " + tt.code)["refused "+tt.code]
				if rounds < refused || rounds > refused*20 {
					t.Errorf("%d messages requeued in an hour, want each at least once and at most 20 times", rounds)
				}
				t.Logf("%d put back in the first hour, %d claims", rounds, before)
				for _, end := range ends {
					end()
				}
				b.WaitFor("all done", 15*time.Minute, func() bool { return b.MessagesLeft() == 0 })
				for i := range refused {
					r := b.Record(fmt.Sprintf("refused-%d", i))
					if r.Status != checkpoint.Done || r.ChargedExits+r.EarlyExits > 0 {
						t.Errorf("record %d = %s, %d unclean exits, want done and none", i, r.Status, r.ChargedExits+r.EarlyExits)
					}
				}
				if n := len(b.PoisonMessages()); n > 0 {
					t.Errorf("%d jobs poisoned, want none", n)
				}
			})
		})
	}
}

// refuse makes storage refuse an operation on payloads until end is called.
func refuse(b *rig.Bed, operation string, with *storage.Error) (end func()) {
	b.Server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == operation && c.Container == b.Names.Payloads {
			return storage.Fault{Refuse: with}
		}
		return storage.Fault{}
	})
	return func() { b.Server.OnCall(nil) }
}

// TestLeaseOnTheRecordOfARunningJob: a client leases the record of a running job. A
// lease of a minute only delays the saves; one of ten minutes costs the work since
// the last save. The log names the service's error code.
func TestLeaseOnTheRecordOfARunningJob(t *testing.T) {
	for _, tt := range []struct {
		lasts      time.Duration
		generation int
	}{{time.Minute, 1}, {10 * time.Minute, 2}} {
		t.Run(tt.lasts.String(), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				work := &rig.Steps{N: 30, Each: time.Second}
				b.Put("a", "steps", "")
				p := b.Start("vm_0", job.Kinds{"steps": work})
				b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record("a").HasState() })
				end := leaseBlob(b, b.Names.Records, jobid.Path("a"))
				time.Sleep(tt.lasts)
				end()
				b.WaitDone("a", 15*time.Minute)
				if r := b.Record("a"); r.Generation != tt.generation || r.Failures > 0 {
					t.Errorf("generation %d, %d failures, want %d and 0", r.Generation, r.Failures, tt.generation)
				}
				named := 0
				for _, line := range p.Log.Find("storage refused the call; trying again") {
					if line["code"] == "LeaseIdMissing" {
						named++
					}
				}
				if outages := len(p.Log.Find("storage is unavailable; trying again")); named == 0 || outages > 0 {
					t.Errorf("%d log lines name the code, %d report an outage, want some and none", named, outages)
				}
				for _, line := range p.Log.Find("message deferred") {
					if !strings.Contains(line["reason"].(string), "storage refused (LeaseIdMissing)") {
						t.Errorf("reason = %q, want the service's code in it", line["reason"])
					}
				}
			})
		})
	}
}

// TestDrainOfARefusedRecord: a drain does not spend its budget on a record that
// storage refuses.
func TestDrainOfARefusedRecord(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Put("a", "steps", "")
		p := b.Start("vm_0", job.Kinds{"steps": &rig.Steps{N: 300, Each: time.Second}})
		b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record("a").HasState() })
		leaseBlob(b, b.Names.Records, jobid.Path("a"))
		asked := time.Now()
		p.Stop()
		if took := time.Since(asked); took > 2*time.Second {
			t.Errorf("the drain took %s, want at most 2s", took)
		}
		if n := len(p.Log.Find("message deferred")); n != 1 {
			t.Errorf("%d messages requeued, want 1", n)
		}
	})
}
