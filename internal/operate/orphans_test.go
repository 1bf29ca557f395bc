package operate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// strand leaves a job as its last worker did, with no message of it anywhere.
func (b *rig) strand(t *testing.T, g given) queue.Envelope {
	t.Helper()
	e := b.put(t, g)
	if _, err := b.stores.Account.Queue(b.names.Poison).ClearMessages(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return e
}

func (b *rig) orphans(t *testing.T) *OrphanReport {
	t.Helper()
	s, err := b.Orphans(t.Context(), checkpoint.StaleAfter)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ids returns the orphans' ids, in a line.
func (s *OrphanReport) ids() string {
	var ids []string
	for _, o := range s.Orphans {
		ids = append(ids, o.Record.ID)
	}
	return strings.Join(ids, " ")
}

// TestOrphans: jobs that have ended, that were written a moment ago or whose
// messages are seen are none; the others are listed, the longest idle first.
func TestOrphans(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.strand(t, given{id: "open", status: checkpoint.Open, state: "half"})
		time.Sleep(time.Second)
		b.strand(t, given{id: "running", status: checkpoint.Running})
		b.strand(t, given{id: "done", status: checkpoint.Done})
		b.strand(t, given{id: "poison"})
		waits := b.strand(t, given{id: "waits", status: checkpoint.Open})
		if err := b.stores.OnDemand.Put(t.Context(), waits, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkpoint.StaleAfter)
		b.strand(t, given{id: "fresh", status: checkpoint.Open})
		s := b.orphans(t)
		if got, want := s.ids(), "open running"; got != want || !s.Complete() {
			t.Errorf("orphans = %q, complete %t, want %q with every message seen", got, s.Complete(), want)
		}
		if idle := s.Orphans[1].Idle; idle < checkpoint.StaleAfter || idle > checkpoint.StaleAfter+time.Minute {
			t.Errorf("idle = %s, want an hour", idle)
		}
		hidden := queue.Envelope{ID: "hidden", Kind: "k"}
		if err := b.stores.Queue.Put(t.Context(), hidden, time.Minute); err != nil {
			t.Fatal(err)
		}
		if s := b.orphans(t); s.ids() != "open running" || s.Complete() || s.Queued != 2 || s.Seen != 1 {
			t.Errorf("survey = %q, %d of %d seen, want the same orphans, and 1 of 2 seen", s.ids(), s.Seen, s.Queued)
		}
	})
}

// TestRequeue: an orphan continues from its state, for each place of its payload and
// each status of its record. A job that has a message all the same, and gets a second
// message because a reply is lost, is done once.
func TestRequeue(t *testing.T) {
	for name, g := range map[string]given{
		"open, no payload":         {status: checkpoint.Open},
		"running, payload in blob": {status: checkpoint.Running, payload: wide, offload: true},
		"open, payload supplied":   {status: checkpoint.Open, payload: small},
		"open, has a message":      {status: checkpoint.Open, payload: wide, offload: true, twice: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				g.id, g.state = "a", "half"
				e := b.strand(t, g)
				if g.twice {
					if err := b.stores.Queue.PutMoved(t.Context(), e, 2*time.Hour, b.stores.Payloads); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(checkpoint.StaleAfter)
				o := b.orphans(t).Orphans[0]
				if inline, _ := g.payload.Inline(); len(inline) > 0 && !g.offload {
					wantRefusal(t, b, o)
					if err := b.Supply(t.Context(), &o, []byte("something else"), nil); err == nil || o.HasPayload {
						t.Errorf("Supply of another payload = %v, want an error", err)
					}
					if err := b.Supply(t.Context(), &o, inline, nil); err != nil {
						t.Error(err)
					}
				}
				b.link.drop, b.link.effect = b.link.count()+2, g.twice // the put: its reply is lost, and the SDK repeats it
				if !g.twice {
					b.link.drop = 0
				}
				if action, detail, err := b.Requeue(t.Context(), o, b.Queue); action != Requeued || err != nil {
					t.Fatalf("Requeue = %s %s, %v", action, detail, err)
				}
				want := 1
				if g.twice {
					want = 3
				}
				if n := len(b.onQueue(t, b.names.Queue)); n != want {
					t.Errorf("messages = %d, want %d", n, want)
				}
				time.Sleep(time.Hour)
				if done := b.work(t); len(done["a"]) != 1 || done["a"][0] != "half" {
					t.Errorf("committed from the states %q, want once from half", done["a"])
				}
			})
		})
	}
}

// someInputs are inputs as messages have them, and other inputs as a person may write
// them.
const (
	someInputs  = `[{"container":"data","prefix":"scenes/7/","to":"scenes"},{"container":"data","blob":"model.bin","etag":"\"0x8D\""}]`
	otherInputs = ` [ {"container": "data", "blob": "other.bin"} ]`
)

// TestRequeueWithInputs: the record of a job has its list of inputs, and the new message
// gets it, wherever the payload was. A list that the record does not have can be supplied,
// and nothing is put with another one.
func TestRequeueWithInputs(t *testing.T) {
	reordered := `[ {"prefix":"scenes/7/", "container":"data", "to":"scenes"}, {"blob":"model.bin","container":"data","etag":"\"0x8D\""} ]`
	for name, row := range map[string]struct {
		given
		supplied string // in place of a list that is gone
	}{
		"no payload":                {given: given{}},
		"payload in blob":           {given: given{payload: wide, offload: true}},
		"payload supplied":          {given: given{payload: small}},
		"list supplied":             {given: given{noList: true}, supplied: someInputs},
		"list written otherwise":    {given: given{noList: true}, supplied: reordered},
		"list and payload in blob":  {given: given{noList: true, payload: wide, offload: true}, supplied: someInputs},
		"list and payload supplied": {given: given{noList: true, payload: small}, supplied: someInputs},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				g := row.given
				g.id, g.state, g.status, g.inputs = "a", "half", checkpoint.Open, someInputs
				b.strand(t, g)
				time.Sleep(checkpoint.StaleAfter)
				o := b.orphans(t).Orphans[0]
				var payload, list []byte
				if inline, ok := g.payload.Inline(); ok && len(inline) > 0 && !g.offload {
					payload = inline
				}
				if row.supplied != "" {
					list = []byte(row.supplied)
				}
				if payload != nil || list != nil {
					wantRefusal(t, b, o)
					if err := b.Supply(t.Context(), &o, payload, []byte(otherInputs)); err == nil || o.Check() == nil {
						t.Errorf("Supply of other inputs = %v, and then Check %v, want two errors", err, o.Check())
					}
					if err := b.Supply(t.Context(), &o, payload, list); err != nil {
						t.Fatal(err)
					}
				}
				if action, detail, err := b.Requeue(t.Context(), o, b.Queue); action != Requeued || err != nil {
					t.Fatalf("Requeue = %s %s, %v", action, detail, err)
				}
				for _, m := range b.server.Messages(b.names.Queue) {
					if e, err := queue.Decode(m.Text); err != nil || string(e.Inputs) != someInputs || e.Work() != o.Record.PayloadHash {
						t.Errorf("message = %s, %v, want the inputs and the payload of the one that was lost", m.Text, err)
					}
				}
				time.Sleep(time.Hour)
				if done := b.work(t); len(done["a"]) != 1 || done["a"][0] != "half" {
					t.Errorf("committed from the states %q, want once from half", done["a"])
				}
			})
		})
	}
}

func wantRefusal(t *testing.T, b *rig, o Orphan) {
	t.Helper()
	if action, detail, err := b.Requeue(t.Context(), o, b.Queue); action != Refused || err != nil {
		t.Errorf("Requeue without the payload = %s %s, %v, want it refused", action, detail, err)
	}
}

// TestRequeueReadsAgain: the record at the time of the requeue decides.
func TestRequeueReadsAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.strand(t, given{id: "a", status: checkpoint.Running})
		e := b.strand(t, given{id: "b", status: checkpoint.Open})
		b.strand(t, given{id: "c", status: checkpoint.Open})
		time.Sleep(checkpoint.StaleAfter)
		s := b.orphans(t)
		if _, err := b.stores.Records.Reopen(t.Context(), checkpoint.Delivery{ID: "a", Kind: "k", PayloadHash: e.Payload.Hash()},
			"somebody"); err != nil {
			t.Fatal(err)
		}
		d := checkpoint.Delivery{ID: "b", Kind: "k", PayloadHash: e.Payload.Hash(), MessageID: "m"}
		claim, err := b.stores.Records.Acquire(t.Context(), d, b.record(t, "b"), "vm")
		if err == nil {
			err = claim.Commit(t.Context(), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutMessage {
				return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
			}
			return storage.Fault{}
		})
		want := map[string]Action{"a": Dropped, "b": Dropped, "c": Failed}
		for _, o := range s.Orphans {
			if action, detail, err := b.Requeue(t.Context(), o, b.Queue); action != want[o.Record.ID] || (action == Failed) != (err != nil) {
				t.Errorf("Requeue of %s = %s %s, %v, want %s", o.Record.ID, action, detail, err, want[o.Record.ID])
			} else if o.Record.ID == "b" && detail != "its job is done already" {
				t.Errorf("Requeue of b says %q", detail)
			}
		}
		if n := len(b.onQueue(t, b.names.Queue)); n != 0 {
			t.Errorf("messages = %d, want none", n)
		}
	})
}

// TestOrphansAreNotCertain: a message that is hidden makes the report incomplete, also if a
// message that was put during the look is seen on another queue.
func TestOrphansAreNotCertain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		e := b.strand(t, given{id: "a", status: checkpoint.Open})
		if err := b.stores.Queue.Put(t.Context(), e, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkpoint.StaleAfter)
		if s := b.orphans(t); s.Complete() || s.Queued != 1 || s.Seen != 0 || s.ids() != "a" {
			t.Errorf("orphans = %q, %d of %d messages seen, complete %t; want a, and one message not seen", s.ids(), s.Seen, s.Queued, s.Complete())
		}
		put := false
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == "PeekMessages" && c.Queue == b.names.OnDemand && !put {
				put = true
				if err := b.stores.OnDemand.Put(t.Context(), queue.Envelope{ID: "new", Kind: "k"}, 0); err != nil {
					t.Error(err)
				}
			}
			return storage.Fault{}
		})
		if s := b.orphans(t); s.Complete() || !put {
			t.Errorf("orphans = %+v, complete although the hidden message was not seen", s)
		}
	})
}

// TestOrphansInOrder: the longest idle comes first, and a foreign message stands for the job with
// its id.
func TestOrphansInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		var want []string
		for i := range 6 {
			id := fmt.Sprint("job-", i)
			want = append(want, id)
			b.strand(t, given{id: id, status: checkpoint.Open})
			time.Sleep(time.Second)
		}
		if err := b.stores.OnDemand.PutUnchanged(t.Context(), "hello"); err != nil {
			t.Fatal(err)
		}
		b.strand(t, given{id: b.server.Messages(b.names.OnDemand)[0].ID, status: checkpoint.Open})
		time.Sleep(checkpoint.StaleAfter)
		if s := b.orphans(t); s.ids() != strings.Join(want, " ") || !s.Complete() {
			t.Errorf("orphans = %q, complete %t, want %q", s.ids(), s.Complete(), want)
		}
	})
}

// TestSupplyIsRefused: each wrong supply has its own error, and none is taken.
func TestSupplyIsRefused(t *testing.T) {
	for name, row := range map[string]struct {
		given
		payload, inputs string
		storage         bool // refuses
		want            string
	}{
		"inputs that are no JSON": {given: given{noList: true, inputs: someInputs}, inputs: "{", want: "the inputs of job a: "},
		"no inputs":               {given: given{noList: true, inputs: someInputs, payload: small}, payload: "small", want: ErrNoInputs.Error()},
		"other inputs": {given: given{noList: true, inputs: someInputs}, inputs: otherInputs,
			want: "with these inputs no payload in storage has the recorded hash"},
		"another payload": {given: given{payload: small}, payload: "large", want: "this is not the payload of job a: its SHA-256 is "},
		"another payload with inputs": {given: given{payload: small, inputs: someInputs}, payload: "large",
			want: "this is not the payload of job a: together with its inputs"},
		"a payload for a job without": {given: given{}, payload: "not JSON", want: "this is not the payload of job a: its SHA-256 is "},
		"storage": {given: given{noList: true, inputs: someInputs, payload: wide, offload: true}, inputs: someInputs, storage: true,
			want: "find the payload of job a"},
	} {
		inBubble(t, func(t *testing.T, b *rig) {
			g := row.given
			g.id, g.status = "a", checkpoint.Open
			b.strand(t, g)
			time.Sleep(checkpoint.StaleAfter)
			o := b.orphans(t).Orphans[0]
			before := o.HasPayload
			if row.storage {
				b.refuse(b.names.Payloads, storage.OpListBlobs, storage.OpGetBlobProperties)
			}
			var payload, inputs []byte
			if row.payload != "" {
				payload = []byte(row.payload)
			}
			if row.inputs != "" {
				inputs = []byte(row.inputs)
			}
			err := b.Supply(t.Context(), &o, payload, inputs)
			if err == nil || !strings.Contains(err.Error(), row.want) || o.HasPayload != before {
				t.Errorf("%s: Supply = %v, want %q", name, err, row.want)
			}
		})
	}
}

// TestRequeueOfOddRecords: fields of a record that no message may have are left out, and without a
// kind there is no message.
func TestRequeueOfOddRecords(t *testing.T) {
	for name, row := range map[string]struct {
		d        checkpoint.Delivery
		want     Action
		estimate time.Duration
		group    string
	}{
		"all":                 {checkpoint.Delivery{Kind: "k", Group: "g", Estimate: time.Hour}, Requeued, time.Hour, "g"},
		"half a second":       {checkpoint.Delivery{Kind: "k", Estimate: time.Hour + time.Second/2}, Requeued, time.Hour, ""},
		"too long":            {checkpoint.Delivery{Kind: "k", Estimate: queue.MaxLimit + time.Second}, Requeued, 0, ""},
		"a group with spaces": {checkpoint.Delivery{Kind: "k", Group: "a b"}, Requeued, 0, ""},
		"a kind with spaces":  {checkpoint.Delivery{Kind: "a b"}, Refused, 0, ""},
	} {
		inBubble(t, func(t *testing.T, b *rig) {
			row.d.ID, row.d.MessageID, row.d.PayloadHash = "a", "m", queue.Payload{}.Hash()
			if _, err := b.stores.Records.Create(t.Context(), row.d, "vm_0"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(checkpoint.StaleAfter)
			action, detail, err := b.Requeue(t.Context(), b.orphans(t).Orphans[0], b.Queue)
			all := b.onQueue(t, b.names.Queue)
			if err != nil || action != row.want || len(all) != map[Action]int{Requeued: 1}[row.want] {
				t.Fatalf("%s: Requeue = %s, %q, %v, %d messages; want %s", name, action, detail, err, len(all), row.want)
			}
			if len(all) == 1 && (all[0].Estimate != row.estimate || all[0].Group != row.group) {
				t.Errorf("%s: message = %+v, want estimate %s, group %q", name, all[0], row.estimate, row.group)
			}
		})
	}
}
