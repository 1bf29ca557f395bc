package queue

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// A moved message says all that the old one said, fields of newer versions
// included, and resume. How long the old one was put back does not count.
func TestPutMoved(t *testing.T) {
	ref := Payload{ref: &Ref{SHA256: strings.Repeat("ab", 32), Size: 1 << 20}}
	for name, payload := range map[string]Payload{
		"inline": jsonPayload(t, `{"n":"<1>"}`), "in a blob": ref, "none": {},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				old := Envelope{
					ID: "a", Kind: "k", Payload: payload, EnqueuedAt: noon, Deadline: noon.Add(time.Hour),
					Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", PutBackSince: noon.Add(time.Minute),
					unknown: map[string]json.RawMessage{"priority": []byte("7")},
				}
				if err := b.jobs.PutMoved(t.Context(), old, 0, b.payloads); err != nil {
					t.Fatal(err)
				}
				m := b.only(t, jobsName)
				want := old
				want.Resume, want.PutBackSince = true, time.Time{}
				if diff := cmp.Diff(want, decode(t, m.Text), exactly); diff != "" {
					t.Errorf("moved message (-want +got)\n%s", diff)
				}
				if !m.Visible || !m.Expires.IsZero() {
					t.Errorf("moved message: visible %t, expires at %s, want visible and never", m.Visible, m.Expires)
				}
				if n := b.Counts()[storage.OpPutBlob]; n != 0 {
					t.Errorf("%d blobs were written for a message that fits", n)
				}
			})
		})
	}
}

// A foreign message is moved as an envelope whose id is fixed; a full message leaves its
// payload in a blob.
func TestPutMovedForeign(t *testing.T) {
	for name, text := range map[string]string{"short": "not an envelope\n", "of 64 KiB": strings.Repeat("x", MaxText)} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				l := b.claim(t, text)
				e := Foreign(l.Text(), l.ID, "k", l.InsertedAt)
				if err := l.Complete(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := b.jobs.PutMoved(t.Context(), e, 0, b.payloads); err != nil {
					t.Fatal(err)
				}
				moved := decode(t, b.only(t, jobsName).Text)
				if moved.ID != l.ID || moved.Kind != "k" || !moved.Resume || moved.Payload.Hash() != e.Payload.Hash() {
					t.Errorf("moved as %+v, want id %s, kind k, resume and the same payload", moved, l.ID)
				}
				if got, err := b.payloads.Load(t.Context(), moved); err != nil || string(got) != text {
					t.Errorf("payload of %d bytes came with %d, %v", len(text), len(got), err)
				}
			})
		})
	}
}

// TestIncompleteAnswers: a list that lacks a part of a message is an error, and no message is
// lost in it silently.
func TestIncompleteAnswers(t *testing.T) {
	complete := func() *azqueue.DequeuedMessage {
		return &azqueue.DequeuedMessage{MessageID: new("m"), PopReceipt: new("p"), DequeueCount: new(int64(1)), InsertionTime: new(noon),
			ExpirationTime: new(noon), MessageText: new("text")}
	}
	for name, damage := range map[string]func(m *azqueue.DequeuedMessage) *azqueue.DequeuedMessage{
		"no message": func(*azqueue.DequeuedMessage) *azqueue.DequeuedMessage { return nil },
		"no id":      func(m *azqueue.DequeuedMessage) *azqueue.DequeuedMessage { m.MessageID = nil; return m },
		"no receipt": func(m *azqueue.DequeuedMessage) *azqueue.DequeuedMessage { m.PopReceipt = new(""); return m },
		"no count":   func(m *azqueue.DequeuedMessage) *azqueue.DequeuedMessage { m.DequeueCount = nil; return m },
		"no time":    func(m *azqueue.DequeuedMessage) *azqueue.DequeuedMessage { m.InsertionTime = nil; return m },
		"no end":     func(m *azqueue.DequeuedMessage) *azqueue.DequeuedMessage { m.ExpirationTime = nil; return m },
		"no text":    func(m *azqueue.DequeuedMessage) *azqueue.DequeuedMessage { m.MessageText = nil; return m },
	} {
		if !isIncomplete(damage(complete())) {
			t.Errorf("%s: the message counts as complete", name)
		}
	}
	if isIncomplete(complete()) {
		t.Error("a complete message counts as incomplete")
	}
}

// TestCreate: a queue that exists already is no error, also if it has metadata.
func TestCreate(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		for code, fine := range map[string]bool{"QueueAlreadyExists": true, "QueueBeingDeleted": false} {
			b.faultOn(storage.OpCreateQueue, 1, storage.Fault{Refuse: &storage.Error{Status: 409, Code: code}})
			if err := b.jobs.Create(t.Context()); (err == nil) != fine {
				t.Errorf("Create with the answer %s = %v, want success %t", code, err, fine)
			}
		}
	})
}

// TestPutAnyFails: an error of each call is the error of the put, and no message is put.
func TestPutAnyFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		for operation, e := range map[string]Envelope{
			storage.OpPutMessage: {ID: "a", Kind: "k"},
			storage.OpPutBlob:    large(t),
		} {
			b.faultOn(operation, allTries, storage.Fault{DropRequest: true})
			if err := b.jobs.PutAny(t.Context(), e, 0, b.payloads); err == nil || len(b.Messages(jobsName)) != 0 {
				t.Errorf("PutAny without %s = %v, %d messages, want an error and none", operation, err, len(b.Messages(jobsName)))
			}
		}
	})
}

// TestPeek: a peek shows messages and how long the front has waited, and fails without an answer.
func TestPeek(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		if waited, err := b.jobs.FrontWaited(t.Context()); waited != 0 || err != nil {
			t.Errorf("FrontWaited of an empty queue = %s, %v", waited, err)
		}
		if err := b.jobs.putText(t.Context(), "text", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Second)
		if waited, err := b.jobs.FrontWaited(t.Context()); waited != 90*time.Second || err != nil {
			t.Errorf("FrontWaited = %s, %v, want 90 s", waited, err)
		}
		peeked, err := b.jobs.Peek(t.Context(), 1000)
		if err != nil || len(peeked) != 1 || peeked[0].Text != "text" || peeked[0].SeenAt.Sub(peeked[0].InsertedAt) != 90*time.Second {
			t.Errorf("Peek = %+v, %v, want one message that waited for 90 s", peeked, err)
		}
		b.OnCall(func(storage.Call) storage.Fault { return storage.Fault{DropReply: true} })
		if _, err := b.jobs.Peek(t.Context(), 1); err == nil {
			t.Error("Peek without a network = <nil>, want an error")
		}
		if _, err := b.jobs.FrontWaited(t.Context()); err == nil {
			t.Error("FrontWaited without a network = <nil>, want an error")
		}
	})
}
