package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// orphaned puts a job in a group and loses its message.
func (b *rig) orphaned(t *testing.T, spec Spec) Orphan {
	t.Helper()
	spec.Kind, spec.Group = "k", "g"
	if _, err := b.Put(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	leases, err := b.stores.Queue.Claim(t.Context(), 1, time.Minute)
	if err == nil && len(leases) == 1 {
		err = leases[0].Complete(t.Context())
	}
	if err != nil || len(leases) != 1 {
		t.Fatal(len(leases), err)
	}
	found, err := b.Orphans(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range found.Jobs {
		if o.Job.ID == spec.ID {
			return o
		}
	}
	t.Fatalf("orphans = %+v, want %s", found.Jobs, spec.ID)
	return Orphan{}
}

// TestRequeueNeedsWhatWasLost: payload and inputs of the lost message have to be given, and to be
// the same.
func TestRequeueNeedsWhatWasLost(t *testing.T) {
	inputs := []job.Input{{Container: "data", Blob: "a.csv"}}
	list, err := json.Marshal(inputs)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		spec    Spec
		options RequeueOptions
		want    Action
	}{
		"no payload":            {Spec{}, RequeueOptions{}, Requeued},
		"a lost payload":        {Spec{Payload: 1}, RequeueOptions{}, Refused},
		"the payload":           {Spec{Payload: 1}, RequeueOptions{Payload: []byte("1")}, Requeued},
		"another payload":       {Spec{Payload: 1}, RequeueOptions{Payload: []byte("2")}, Refused},
		"the inputs":            {Spec{Inputs: inputs}, RequeueOptions{Inputs: list}, Requeued},
		"other inputs":          {Spec{Inputs: inputs}, RequeueOptions{Inputs: []byte(`[{"container":"data","blob":"b"}]`)}, Refused},
		"inputs that were kept": {Spec{Inputs: inputs, Payload: 1}, RequeueOptions{Payload: []byte("1")}, Requeued},
		"both":                  {Spec{Inputs: inputs, Payload: 1}, RequeueOptions{Payload: []byte("1"), Inputs: list}, Requeued},
	} {
		b := setup(t)
		row.spec.ID = "a"
		o := b.orphaned(t, row.spec)
		if err := b.CheckRequeue(t.Context(), o, row.options); (err != nil) != (row.want == Refused) {
			t.Errorf("%s: CheckRequeue = %v, want that it is %s", name, err, row.want)
		}
		r := b.Requeue(t.Context(), o, row.options)
		if r.Action != row.want || (r.Err != nil) != (row.want == Refused) || r.ID != "a" || r.Was != StatusOpen {
			t.Errorf("%s: Requeue = %+v, want %s", name, r, row.want)
		}
		if row.want == Refused && (r.Detail == "" || !strings.Contains(r.Err.Error(), r.Detail) || !strings.Contains(r.Err.Error(), "payload")) {
			t.Errorf("%s: Requeue = %q, %v, want the reason in both", name, r.Detail, r.Err)
		}
		messages := b.messages(t, b.stores.Queue.Name())
		if n := len(messages); n != map[Action]int{Requeued: 1}[row.want] {
			t.Errorf("%s: %d messages after %s", name, n, row.want)
		}
		if row.want == Requeued {
			if payload, _ := messages[0].Payload.Inline(); row.spec.Payload == 1 && string(payload) != "1" {
				t.Errorf("%s: payload = %q, want 1", name, payload)
			}
		}
	}
}

// TestOrphansInOrder: the longest idle job comes first, and a message that is hidden is not seen.
func TestOrphansInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := setup(t)
		for _, id := range []string{"b", "c", "a"} {
			c.seed(t, id, StatusOpen)
			time.Sleep(time.Minute)
		}
		for i := range 5 {
			if err := c.stores.Queue.Put(t.Context(), queue.Envelope{ID: fmt.Sprintf("waits-%d", i), Kind: "k"}, 0); err != nil {
				t.Fatal(err)
			}
		}
		found, err := c.Orphans(t.Context(), 0)
		if err != nil || len(found.Jobs) != 3 || found.Queued != 5 || found.Seen != 5 || !found.Complete() {
			t.Fatalf("Orphans = %+v, %v, want three and 5 messages", found, err)
		}
		for i, o := range found.Jobs {
			if want := time.Duration(3-i) * time.Minute; o.Idle != want {
				t.Errorf("orphan %d is idle for %s, want %s", i, o.Idle, want)
			}
		}
		if _, err := c.stores.Queue.Claim(t.Context(), 1, time.Hour); err != nil {
			t.Fatal(err)
		}
		if found, err = c.Orphans(t.Context(), 0); err != nil || found.Complete() || found.Seen != 4 {
			t.Errorf("Orphans with a hidden message = %+v, %v, want that it is not complete", found, err)
		}
		first := true // the call that reads how many queues there are
		c.server.OnCall(func(call storage.Call) storage.Fault {
			if first && call.Operation == storage.OpGetQueueMetadata {
				first = false
				return refused
			}
			return storage.Fault{}
		})
		if _, err = c.Orphans(t.Context(), 0); !errors.Is(err, ErrDenied) {
			t.Errorf("Orphans of unknown queues = %v, want ErrDenied", err)
		}
	})
}
