package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// The first put-back notes since when, by the service's clock; the next ones keep it.
func TestPutBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		sent := Envelope{ID: "a", Kind: "k", Payload: jsonPayload(t, `"<x>"`), EnqueuedAt: noon}
		l := b.claim(t, encode(t, sent))
		since := l.ClaimedAt
		for delivery := range 3 {
			e := decode(t, l.Text())
			if delivery > 0 && !e.PutBackSince.Equal(since) {
				t.Fatalf("delivery %d: put_back_since = %s, want %s", delivery+1, e.PutBackSince, since)
			}
			if err := l.PutBack(t.Context(), e, b.payloads, time.Minute); err != nil {
				t.Fatal(err)
			}
			m := b.only(t, jobsName)
			if got := time.Until(m.NextVisible); got != time.Minute {
				t.Errorf("delivery %d: hidden for %s, want a minute", delivery+1, got)
			}
			if !m.Expires.IsZero() {
				t.Errorf("delivery %d: expires at %s, want never", delivery+1, m.Expires)
			}
			time.Sleep(time.Minute)
			l = b.claimNext(t)
		}
		e := decode(t, l.Text())
		if e.ID != "a" || e.Payload.Hash() != sent.Payload.Hash() || !e.EnqueuedAt.Equal(noon) {
			t.Errorf("after three put-backs the message is %+v, want what was sent", e)
		}
		if count := b.Counts()[storage.OpPutBlob]; count != 0 {
			t.Errorf("%d blobs were written for a message that fits", count)
		}
	})
}

// A foreign message becomes an envelope whose id is fixed, and keeps the time to
// live that its sender gave it.
func TestPutBackForeign(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		const text = "not an envelope\n"
		l := b.claim(t, text)
		foreign := Foreign(l.Text(), l.ID, "k", l.InsertedAt)
		if err := l.PutBack(t.Context(), foreign, b.payloads, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		m := b.only(t, jobsName)
		e := decode(t, m.Text)
		if payload, _ := e.Payload.Inline(); e.ID != m.ID || string(payload) != text || !e.EnqueuedAt.Equal(m.Inserted) {
			t.Errorf("put back as %+v, want id %s, the text and its time", e, m.ID)
		}
	})
}

// A message of 64 KiB leaves no room for put_back_since: its payload moves.
func TestPutBackTooLarge(t *testing.T) {
	largest := "{\"v\":1,\"id\":\"a\",\"kind\":\"k\",\"payload\":\"\"}"
	for name, text := range map[string]string{
		"foreign":             strings.Repeat("x", MaxText),
		"plain-text envelope": strings.Replace(largest, `""`, `"`+strings.Repeat("y", MaxText-len(largest))+`"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				l := b.claim(t, text)
				e, err := Decode(l.Text())
				if err != nil {
					e = Foreign(l.Text(), l.ID, "k", l.InsertedAt)
				}
				want, _ := e.Payload.Inline()
				if err := l.PutBack(t.Context(), e, b.payloads, 30*time.Second); err != nil {
					t.Fatal(err)
				}
				back := decode(t, b.only(t, jobsName).Text)
				if back.Payload.Ref() == nil || back.PutBackSince.IsZero() || back.ID != e.ID {
					t.Fatalf("put back as %+v, want a reference and a time", back)
				}
				got, err := b.payloads.Load(t.Context(), back)
				if err != nil || string(got) != string(want) {
					t.Errorf("payload of %d bytes came back with %d, %v", len(want), len(got), err)
				}
			})
		})
	}
}

// However a put-back fails, a repeat of it puts the message back, once.
func TestPutBackInTrouble(t *testing.T) {
	for name, fault := range map[string]storage.Fault{
		"replies lost":  {DropReply: true},
		"requests lost": {DropRequest: true},
		"busy":          {Refuse: storage.ServerBusy(0)},
	} {
		for _, operation := range []string{storage.OpUpdateMessage, storage.OpPutBlob} {
			t.Run(name+" of "+operation, func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *rig) {
					l := b.claim(t, strings.Repeat("x", MaxText))
					e := Foreign(l.Text(), l.ID, "k", l.InsertedAt)
					b.faultOn(operation, 5, fault) // one call of four tries, and one more try
					if err := l.PutBack(t.Context(), e, b.payloads, 30*time.Second); err == nil {
						t.Fatal("PutBack without a network = <nil>, want an error")
					}
					if err := l.PutBack(t.Context(), e, b.payloads, 30*time.Second); err != nil {
						t.Fatalf("a second PutBack = %v, want no error", err)
					}
					time.Sleep(30 * time.Second)
					back := decode(t, b.claimNext(t).Text())
					if back.PutBackSince.IsZero() || back.Payload.Hash() != e.Payload.Hash() {
						t.Errorf("put back as %+v, want the same payload and a time", back)
					}
				})
			})
		}
	}
}

// TestPutBackInTheFuture: a time in the future is none of ours, and the current time replaces it.
func TestPutBackInTheFuture(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		l := b.claim(t, encode(t, Envelope{ID: "a", Kind: "k", PutBackSince: time.Now().Add(time.Hour)}))
		if err := l.PutBack(t.Context(), decode(t, l.Text()), b.payloads, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		if e := decode(t, b.only(t, jobsName).Text); !e.PutBackSince.Equal(l.ClaimedAt) {
			t.Errorf("put back since %s, want %s", e.PutBackSince, l.ClaimedAt)
		}
	})
}

// TestClearPutBack: once a job is worked on, the next update of its message takes
// put_back_since out, also after a later claim was adopted, and costs no call more.
func TestClearPutBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		l := b.claim(t, encode(t, Envelope{ID: "a", Kind: "k", PutBackSince: noon, Resume: true}))
		e := l.ClearPutBack(decode(t, l.Text()))
		if !e.PutBackSince.IsZero() || !e.Resume {
			t.Errorf("ClearPutBack = %+v, want the envelope without put_back_since", e)
		}
		if got := decode(t, b.only(t, jobsName).Text); !got.PutBackSince.Equal(noon) {
			t.Errorf("before an update put_back_since = %s, want %s", got.PutBackSince, noon)
		}
		time.Sleep(31 * time.Second)
		l.Adopt(b.claimNext(t))
		before := b.Counts()
		if err := l.Renew(t.Context(), 30*time.Second); err != nil {
			t.Fatal(err)
		}
		if got := decode(t, b.only(t, jobsName).Text); !got.PutBackSince.IsZero() || got.ID != "a" || !got.Resume {
			t.Errorf("after an update the message is %+v, want it without put_back_since", got)
		}
		if calls := b.Counts()[storage.OpUpdateMessage] - before[storage.OpUpdateMessage]; calls != 1 {
			t.Errorf("updates = %d, want 1", calls)
		}
	})
}
