package producer

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
)

// deliver takes up to n messages off the queue as a worker does, by the rules of
// their records, and commits the jobs that may be done. It returns their ids.
func (b *rig) deliver(t *testing.T, n int) (committed []string) {
	t.Helper()
	for range n {
		leases, err := b.Queue.For("").Claim(t.Context(), 1, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if len(leases) == 0 {
			break
		}
		if id := b.do(t, leases[0]); id != "" {
			committed = append(committed, id)
		}
	}
	return committed
}

// do makes one delivery, and returns the job's id if it was committed.
func (b *rig) do(t *testing.T, lease *queue.Lease) string {
	t.Helper()
	e, err := queue.Decode(lease.Text())
	if err != nil {
		t.Fatal(err)
	}
	d := checkpoint.Delivery{ID: e.ID, Kind: e.Kind, PayloadHash: e.Work(), MessageID: lease.ID, Again: e.Again}
	claim, ruling := b.stores.Records.Fresh(d, "worker"), checkpoint.Create
	if lease.Deliveries > 1 || e.Resume {
		var found checkpoint.Record
		if found, ruling, err = b.stores.Records.Lookup(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if ruling == checkpoint.Acquire {
			if claim, err = b.stores.Records.Acquire(t.Context(), d, found, "worker"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if ruling == checkpoint.Create || ruling == checkpoint.Acquire {
		var payload []byte
		if payload, err = b.stores.Payloads.Load(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		err = claim.Commit(t.Context(), fmt.Appendf(nil, "result of %s with %d bytes", e.ID, len(payload)))
		if conflict, ok := errors.AsType[*checkpoint.ConflictError](err); ok {
			ruling = conflict.Ruling
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if ruling == checkpoint.PutBack {
		err = lease.Release(t.Context(), 30*time.Second)
	} else {
		err = lease.Complete(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if ruling == checkpoint.Create || ruling == checkpoint.Acquire {
		return e.ID
	}
	return ""
}

// seed writes the record of a job as it is when its only delivery is in a state, and
// returns the producer's spec of the job.
func (b *rig) seed(t *testing.T, id string, status checkpoint.Status) Spec {
	t.Helper()
	spec := Spec{ID: id, Kind: "k"}
	d := checkpoint.Delivery{ID: id, Kind: spec.Kind, PayloadHash: spec.Payload.Hash(), MessageID: "dead"}
	claim, err := b.stores.Records.Create(t.Context(), d, "worker-1")
	switch {
	case err != nil:
	case status == checkpoint.Open:
		err = claim.Release(t.Context(), checkpoint.Snapshot{})
	case status == checkpoint.Done:
		err = claim.Commit(t.Context(), []byte("result of "+id))
	case status == checkpoint.Poison:
		err = claim.Poison(t.Context(), checkpoint.Snapshot{}, "no such frame")
	case status == checkpoint.Cancelled:
		_, err = b.stores.Records.Cancel(t.Context(), id, "operator", "not wanted", false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return spec
}
