package worker

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/testing/race"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// leaseBlob acquires a lease without an end on a blob. release breaks it.
func (b *testbed) leaseBlob(container, name string) (release func()) {
	b.t.Helper()
	blob := b.account(b.server.Transport()).Container(container).NewBlockBlobClient(name)
	l, err := lease.NewBlobClient(blob, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := l.AcquireLease(b.t.Context(), -1, nil); err != nil {
		b.t.Fatal(err)
	}
	return func() {
		if _, err := l.BreakLease(b.t.Context(), &lease.BlobBreakOptions{BreakPeriod: new(int32(0))}); err != nil {
			b.t.Error(err)
		}
	}
}

// putOpen enqueues a job whose record is open, as after a failure.
func (b *testbed) putOpen(id, kind string) {
	b.t.Helper()
	e := queue.Envelope{ID: id, Kind: kind, Resume: true}
	c := b.records.Fresh(checkpoint.Delivery{ID: id, Kind: kind, PayloadHash: e.Payload.Hash(), MessageID: "old"}, "test")
	if err := c.Fail(b.t.Context(), checkpoint.Snapshot{}, "no"); err != nil {
		b.t.Fatal(err)
	}
	if err := b.queue.Put(b.t.Context(), e, 0); err != nil {
		b.t.Fatal(err)
	}
}

// TestPermanentlyRefused: storage refuses the records or payloads of more jobs than
// there are slots. Other jobs are done beside them. The refused ones are tried a few
// times an hour, nothing of them is lost or counted, and they are done once storage
// accepts them.
func TestPermanentlyRefused(t *testing.T) {
	race.Skip(t)
	const refused, healthy = 8, 40
	big := bytes.Repeat([]byte("x"), 100<<10)
	cases := map[string]struct {
		code string
		// begin enqueues a job that storage refuses until end is called.
		begin func(b *testbed, id string) (end func())
	}{
		"a lease on the record": {"LeaseIdMissing", func(b *testbed, id string) func() {
			b.putOpen(id, "echo")
			return b.leaseBlob(b.names.Records, jobid.Path(id))
		}},
		"an archived payload": {"BlobArchived", func(b *testbed, id string) func() {
			b.putLarge(id, "echo", big)
			return b.refuse(storage.OpGetBlob, &storage.Error{Status: 409, Code: "BlobArchived", Message: "archived"})
		}},
		"a payload that cannot be deleted": {"BlobImmutableDueToPolicy", func(b *testbed, id string) func() {
			b.putLarge(id, "echo", big)
			return b.refuse(storage.OpDeleteBlob, &storage.Error{Status: 409, Code: "BlobImmutableDueToPolicy", Message: "immutable"})
		}},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *testbed) {
				var ends []func()
				for i := range refused {
					ends = append(ends, tt.begin(b, fmt.Sprintf("refused-%d", i)))
				}
				for i := range healthy {
					b.put(fmt.Sprintf("healthy-%d", i), "steps", "")
				}
				c := &counter{}
				kinds := job.Kinds{"echo": echo, "steps": &steps{n: 1, each: time.Second}}
				for i := range 2 {
					b.start(fmt.Sprintf("vm_%d", i), kinds, withObserver(c), func(c *Config) { c.Concurrency = 2 })
				}
				begun := time.Now()
				b.waitFor("healthy jobs done", 2*time.Minute, func() bool { return b.messagesLeft() == refused })
				t.Logf("%d healthy jobs beside %d refused ones took %s", healthy, refused, time.Since(begun).Round(time.Second))
				time.Sleep(time.Hour)
				before := b.server.Counts()[storage.OpGetMessages]
				rounds := c.of("refused " + tt.code)["refused "+tt.code]
				if rounds < refused || rounds > refused*20 {
					t.Errorf("%d messages requeued in an hour, want each at least once and at most 20 times", rounds)
				}
				t.Logf("%d put back in the first hour, %d claims", rounds, before)
				for _, end := range ends {
					end()
				}
				b.waitFor("all done", 15*time.Minute, func() bool { return b.messagesLeft() == 0 })
				for i := range refused {
					r := b.record(fmt.Sprintf("refused-%d", i))
					if r.Status != checkpoint.Done || r.ChargedExits+r.EarlyExits > 0 {
						t.Errorf("record %d = %s, %d unclean exits, want done and none", i, r.Status, r.ChargedExits+r.EarlyExits)
					}
				}
				if n := len(b.poisonMessages()); n > 0 {
					t.Errorf("%d jobs poisoned, want none", n)
				}
			})
		})
	}
}

// refuse makes storage refuse an operation on payloads until end is called.
func (b *testbed) refuse(operation string, with *storage.Error) (end func()) {
	b.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == operation && c.Container == b.names.Payloads {
			return storage.Fault{Refuse: with}
		}
		return storage.Fault{}
	})
	return func() { b.server.OnCall(nil) }
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
			inBubble(t, func(t *testing.T, b *testbed) {
				work := &steps{n: 30, each: time.Second}
				b.put("a", "steps", "")
				p := b.start("vm_0", job.Kinds{"steps": work})
				b.waitFor("a checkpoint", 20*time.Second, func() bool { return b.record("a").HasState() })
				end := b.leaseBlob(b.names.Records, jobid.Path("a"))
				time.Sleep(tt.lasts)
				end()
				b.waitDone("a", 15*time.Minute)
				if r := b.record("a"); r.Generation != tt.generation || r.Failures > 0 {
					t.Errorf("generation %d, %d failures, want %d and 0", r.Generation, r.Failures, tt.generation)
				}
				named := 0
				for _, line := range p.log.find("storage refused the call; trying again") {
					if line["code"] == "LeaseIdMissing" {
						named++
					}
				}
				if outages := len(p.log.find("storage is unavailable; trying again")); named == 0 || outages > 0 {
					t.Errorf("%d log lines name the code, %d report an outage, want some and none", named, outages)
				}
				for _, line := range p.log.find("message deferred") {
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
	inBubble(t, func(t *testing.T, b *testbed) {
		b.put("a", "steps", "")
		p := b.start("vm_0", job.Kinds{"steps": &steps{n: 300, each: time.Second}})
		b.waitFor("a checkpoint", 20*time.Second, func() bool { return b.record("a").HasState() })
		b.leaseBlob(b.names.Records, jobid.Path("a"))
		asked := time.Now()
		p.stop()
		if took := time.Since(asked); took > 2*time.Second {
			t.Errorf("the drain took %s, want at most 2s", took)
		}
		if n := len(p.log.find("message deferred")); n != 1 {
			t.Errorf("%d messages requeued, want 1", n)
		}
	})
}
