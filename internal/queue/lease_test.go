package queue

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

func TestClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		if leases, err := b.jobs.Claim(t.Context(), 1, 30*time.Second); len(leases) != 0 || err != nil {
			t.Errorf("Claim of an empty queue = %d messages, %v, want none and no error", len(leases), err)
		}
		put := time.Now()
		if err := b.jobs.Put(t.Context(), Envelope{ID: "a", Kind: "k"}, 90*time.Second); err != nil {
			t.Fatal(err)
		}
		if depth, err := b.jobs.Depth(t.Context()); depth != 1 || err != nil {
			t.Errorf("Depth with an invisible message = %d, %v, want 1", depth, err)
		}
		time.Sleep(90*time.Second - 1)
		if leases, _ := b.jobs.Claim(t.Context(), 1, 30*time.Second); len(leases) != 0 {
			t.Error("a delayed message was claimed before its time")
		}
		time.Sleep(time.Nanosecond)
		asked := time.Now()
		b.faultOn(storage.OpGetMessages, 1, storage.Fault{Before: 3 * time.Second})
		l := b.claimNext(t)
		if l.Deliveries != 1 || l.Queue() != b.jobs || !l.AskedAt.Equal(asked) {
			t.Errorf("lease = %d deliveries of %v, asked at %s, want the first of the queue of jobs at %s", l.Deliveries, l.Queue(), l.AskedAt,
				asked)
		}
		if want := asked.Add(3 * time.Second); !l.ClaimedAt.Equal(want) || !l.InsertedAt.Equal(put) {
			t.Errorf("claimed at %s, inserted at %s, want %s and %s by the service's clock", l.ClaimedAt, l.InsertedAt, want, put)
		}
	})
}

// A renewal keeps the text and changes the receipt, and counts from when it is made.
func TestRenew(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		const text = "  somebody else's <text> & ]]> é\n"
		l := b.claim(t, text)
		before := b.only(t, jobsName)
		time.Sleep(20 * time.Second)
		for range 3 {
			if err := l.Renew(t.Context(), 30*time.Second); err != nil {
				t.Fatalf("Renew: %v", err)
			}
		}
		after := b.only(t, jobsName)
		if after.PopReceipt == before.PopReceipt {
			t.Error("a renewal left the receipt as it was; the test proves nothing")
		}
		if after.Text != text || l.Text() != text {
			t.Errorf("text after a renewal = %q, in the lease %q, want %q", after.Text, l.Text(), text)
		}
		if want := time.Now().Add(30 * time.Second); !after.NextVisible.Equal(want) || !l.HiddenUntil().Equal(want) {
			t.Errorf("visible again at %s, by the lease at %s, want %s", after.NextVisible, l.HiddenUntil(), want)
		}
		if err := l.Complete(t.Context()); err != nil || len(b.Messages(jobsName)) != 0 {
			t.Errorf("Complete after renewals = %v, %d messages left, want none", err, len(b.Messages(jobsName)))
		}
	})
}

// A receipt outlives its visibility until another client dequeues the message.
func TestLost(t *testing.T) {
	lose := map[string]func(t *testing.T, b *rig, l *Lease){
		"to another worker": func(t *testing.T, b *rig, _ *Lease) {
			time.Sleep(31 * time.Second)
			b.claimNext(t)
		},
		"deleted": func(t *testing.T, b *rig, _ *Lease) {
			time.Sleep(31 * time.Second)
			if err := b.claimNext(t).Complete(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, lose := range lose {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				l := b.claim(t, encode(t, Envelope{ID: "a", Kind: "k"}))
				lose(t, b, l)
				before := b.Messages(jobsName)
				if err := l.Renew(t.Context(), 30*time.Second); !errors.Is(err, ErrLost) {
					t.Errorf("Renew = %v, want ErrLost", err)
				}
				for what, err := range map[string]error{
					"Release":  l.Release(t.Context(), 0),
					"PutBack":  l.PutBack(t.Context(), Envelope{ID: "a", Kind: "k"}, b.payloads, 30*time.Second),
					"Complete": l.Complete(t.Context()),
				} {
					if err != nil {
						t.Errorf("%s of a lost message = %v, want no error", what, err)
					}
				}
				if l.Gone() != (name == "deleted") {
					t.Errorf("Gone = %t for a message that was lost %s", l.Gone(), name)
				}
				after := b.Messages(jobsName)
				if len(after) != len(before) || len(after) == 1 && after[0] != before[0] {
					t.Errorf("the message was %+v, a lease that lost it made it %+v", before, after)
				}
			})
		})
	}
}

func TestRenewAfterVisibilityRanOut(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		l := b.claim(t, "x")
		time.Sleep(time.Hour)
		if err := l.Renew(t.Context(), 30*time.Second); err != nil {
			t.Errorf("Renew of a message that no other client dequeued = %v, want no error", err)
		}
	})
}

func TestRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		l := b.claim(t, "x")
		if err := l.Release(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		again := b.claimNext(t)
		if again.ID != l.ID || again.Text() != "x" || again.Deliveries != 2 {
			t.Errorf("after a release the queue gives %s with %q, delivery %d, want %s with x, delivery 2", again.ID, again.Text(),
				again.Deliveries, l.ID)
		}
		if err := again.Release(t.Context(), 1500*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if got, want := b.only(t, jobsName).NextVisible, time.Now().Add(2*time.Second); !got.Equal(want) {
			t.Errorf("released for 1.5s, visible at %s, want %s: a wait is never shorter than was asked for", got, want)
		}
	})
}

// TestLeaseInTrouble loses requests and replies of every call.
func TestLeaseInTrouble(t *testing.T) {
	renew := func(t *testing.T, l *Lease) error { return l.Renew(t.Context(), 30*time.Second) }
	release := func(t *testing.T, l *Lease) error { return l.Release(t.Context(), 0) }
	complete := func(t *testing.T, l *Lease) error { return l.Complete(t.Context()) }
	const update, remove = storage.OpUpdateMessage, storage.OpDeleteMessage
	reply, request := storage.Fault{DropReply: true}, storage.Fault{DropRequest: true}
	busy := storage.Fault{Refuse: storage.ServerBusy(0)}

	for _, row := range []struct {
		name      string
		do        func(*testing.T, *Lease) error
		operation string
		tries     int
		fault     storage.Fault
		first     string // the call's result: nil, lost, or other
		second    string // the result of the same call once the trouble is over
	}{
		{"renew, reply lost", renew, update, 1, reply, "other", "lost"},
		{"renew, all replies lost", renew, update, allTries, reply, "other", "lost"},
		{"renew, request lost", renew, update, 1, request, "other", "nil"},
		{"renew, all requests lost", renew, update, allTries, request, "other", "nil"},
		{"renew, busy", renew, update, allTries, busy, "other", "nil"},
		{"release, reply lost", release, update, 1, reply, "nil", "nil"},
		{"release, all replies lost", release, update, allTries, reply, "other", "nil"},
		{"release, all requests lost", release, update, allTries, request, "other", "nil"},
		{"complete, reply lost", complete, remove, 1, reply, "nil", "nil"},
		{"complete, all replies lost", complete, remove, allTries, reply, "other", "nil"},
		{"complete, all requests lost", complete, remove, allTries, request, "other", "nil"},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				l := b.claim(t, "x")
				b.faultOn(row.operation, row.tries, row.fault)
				if got := kindOf(row.do(t, l)); got != row.first {
					t.Errorf("in trouble = %s, want %s", got, row.first)
				}
				b.OnCall(nil)
				if got := kindOf(row.do(t, l)); got != row.second {
					t.Errorf("afterwards = %s, want %s", got, row.second)
				}
				want := 1
				if row.operation == remove {
					want = 0
				}
				time.Sleep(time.Minute) // in each case the message comes back, once
				leases, err := b.jobs.Claim(t.Context(), MaxClaim, time.Second)
				if len(leases) != want || err != nil {
					t.Fatalf("messages at the end = %d, %v, want %d", len(leases), err, want)
				}
				if want == 1 && leases[0].Text() != "x" {
					t.Errorf("text at the end = %q, want x", leases[0].Text())
				}
			})
		})
	}
}

func kindOf(err error) string {
	switch {
	case err == nil:
		return "nil"
	case errors.Is(err, ErrLost):
		return "lost"
	default:
		return "other"
	}
}

// TestRenewWithoutAnswer: a renewal is one request, so that a refusal is never
// the answer to a retry, and the lease knows for how long the message may be hidden.
func TestRenewWithoutAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		l := b.claim(t, "x")
		claimed := time.Now()
		if got := l.DoubtfulUntil(); !got.IsZero() {
			t.Errorf("DoubtfulUntil of a fresh claim = %s, want none", got)
		}
		time.Sleep(10 * time.Second)
		asked := time.Now()
		b.ResetCounts()
		b.faultOn(storage.OpUpdateMessage, 1, storage.Fault{DropReply: true})
		if got := kindOf(l.Renew(t.Context(), 40*time.Second)); got != "other" {
			t.Errorf("renewal whose reply was lost = %s, want other", got)
		}
		if n := b.Counts()[storage.OpUpdateMessage]; n != 1 {
			t.Errorf("requests of one renewal = %d, want 1", n)
		}
		if got := l.DoubtfulUntil(); !got.Equal(asked.Add(40*time.Second)) || !l.HiddenUntil().Equal(claimed.Add(30*time.Second)) {
			t.Errorf("hidden until %s, perhaps until %s, want what the claim bought, and perhaps what the renewal did", l.HiddenUntil(), got)
		}
		b.faultOn(storage.OpUpdateMessage, 1, storage.Fault{DropRequest: true})
		time.Sleep(time.Second)
		first := kindOf(l.Renew(t.Context(), 10*time.Second))
		if got := l.DoubtfulUntil(); first != "other" || !got.Equal(asked.Add(40*time.Second)) {
			t.Errorf("after a shorter one without an answer (%s) doubtful until %s, want what the longer one may have bought", first, got)
		}
		if got := kindOf(l.Renew(t.Context(), time.Hour)); got != "lost" {
			t.Errorf("renewal under a void receipt = %s, want lost", got)
		}
		b.faultOn(storage.OpUpdateMessage, 1, storage.Fault{DropRequest: true})
		void := kindOf(l.Renew(t.Context(), time.Hour))
		if got := l.DoubtfulUntil(); void != "other" || !got.Equal(asked.Add(40*time.Second)) {
			t.Errorf("after %s under a void receipt doubtful until %s, want what it was: that one can have bought nothing", void, got)
		}
		time.Sleep(40 * time.Second)
		l.Adopt(b.claimNext(t))
		if !l.DoubtfulUntil().IsZero() || l.Expired(time.Now()) {
			t.Errorf("adopted lease: doubtful until %s, expired %t, want neither", l.DoubtfulUntil(), l.Expired(time.Now()))
		}
	})
}

// TestGone: the last answer about the message counts. An error that is no answer, and the answer
// to a receipt from before a later claim, change nothing.
func TestGone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		l := b.claim(t, "x")
		missing := storage.Fault{Refuse: &storage.Error{Status: 404, Code: "MessageNotFound"}}
		for _, row := range []struct {
			name  string
			fault storage.Fault
			gone  bool
		}{
			{"renewed", storage.Fault{}, false},
			{"busy", storage.Fault{Refuse: storage.ServerBusy(0)}, false},
			{"not found", missing, true},
			{"busy after it", storage.Fault{Refuse: storage.ServerBusy(0)}, true},
			{"renewed after it", storage.Fault{}, false},
			{"stale", storage.Fault{Refuse: &storage.Error{Status: 400, Code: "PopReceiptMismatch"}}, false},
		} {
			b.faultOn(storage.OpUpdateMessage, 1, row.fault)
			err := l.Renew(t.Context(), 30*time.Second)
			if gone := l.Gone(); gone != row.gone {
				t.Errorf("%s (%v): gone = %t, want %t", row.name, err, gone, row.gone)
			}
		}
		time.Sleep(time.Minute)
		missing.Before = time.Second
		b.faultOn(storage.OpUpdateMessage, 1, missing)
		var calls sync.WaitGroup
		calls.Go(func() { _ = l.Renew(t.Context(), 30*time.Second) })
		synctest.Wait()
		l.Adopt(b.claimNext(t))
		calls.Wait()
		if l.Gone() {
			t.Error("gone by the answer to an old receipt")
		}
	})
}

// TestCallWaitsForItsTurn: a call whose caller gives up while another is in flight is not made.
func TestCallWaitsForItsTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		l := b.claim(t, "x")
		b.faultOn(storage.OpUpdateMessage, 1, storage.Fault{Before: 10 * time.Second})
		var calls sync.WaitGroup
		calls.Go(func() {
			if err := l.Renew(t.Context(), 30*time.Second); err != nil {
				t.Errorf("the first call = %v, want no error", err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Complete(ctx); !errors.Is(err, context.DeadlineExceeded) || b.Counts()[storage.OpDeleteMessage] != 0 {
			t.Errorf("Complete beside another call = %v, want the end of its context and no request", err)
		}
		calls.Wait()
		if l.Expired(time.Now()) || l.Expired(time.Now().Add(19*time.Second)) || !l.Expired(time.Now().Add(20*time.Second)) {
			t.Errorf("hidden until %s, want 30 s from when the renewal was sent", l.HiddenUntil())
		}
	})
}

// TestExpiresAt: a message of another sender expires, and a message of ours never does.
func TestExpiresAt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		if l := b.claim(t, "ours"); !l.ExpiresAt.IsZero() {
			t.Errorf("a message of ours expires at %s, want never", l.ExpiresAt)
		}
		put := time.Now()
		options := azqueue.EnqueueMessageOptions{TimeToLive: new(int32(3600))}
		if _, err := b.jobs.client.EnqueueMessage(t.Context(), "theirs", &options); err != nil {
			t.Fatal(err)
		}
		if l := b.claimNext(t); !l.ExpiresAt.Equal(put.Add(time.Hour)) {
			t.Errorf("a message that lives for an hour expires at %s, want %s", l.ExpiresAt, put.Add(time.Hour))
		}
	})
}

// TestExpired: a lease ends by the clock that reaches its end first.
func TestExpired(t *testing.T) {
	asked := time.Now()
	h := hiding{asked, 30 * time.Second}
	for _, row := range []struct {
		name string
		now  time.Time
		want bool
	}{
		{"just before", asked.Add(30*time.Second - 1), false},
		{"both clocks", asked.Add(30 * time.Second), true},
		{"wall clock ahead, as after a suspended VM", wallShifted(asked.Add(10*time.Second), time.Minute), true},
		{"wall clock at the end", wallShifted(asked.Add(10*time.Second), 20*time.Second), true},
		{"wall clock set back before the end", wallShifted(asked.Add(10*time.Second), -time.Hour), false},
		{"wall clock set back at the end", wallShifted(asked.Add(30*time.Second), -time.Hour), true},
		// Without a monotonic reading only the wall clock is compared.
		{"no monotonic reading", asked.Round(0).Add(time.Minute), true},
		{"no monotonic reading, set back", asked.Round(0).Add(-time.Hour), false},
	} {
		if got := h.over(row.now); got != row.want {
			t.Errorf("%s: over = %t, want %t", row.name, got, row.want)
		}
	}
}

// wallShifted returns a time whose wall clock is off by whole seconds, with the same monotonic
// reading. The wall clock's seconds are in the bits above 30 of a time's first word.
func wallShifted(t time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(by/time.Second) << 30
	return t
}

func TestThrottled(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		for _, row := range []struct {
			fault         storage.Fault
			want, tooFast bool
		}{
			{storage.Fault{Refuse: storage.ServerBusy(0)}, true, true},
			{storage.Fault{Refuse: &storage.Error{Status: 429, Code: "TooManyRequests"}}, true, true},
			{storage.Fault{Refuse: &storage.Error{Status: 500, Code: "OperationTimedOut"}}, false, true},
			{storage.Fault{Refuse: &storage.Error{Status: 500, Code: "InternalError"}}, false, false},
			{storage.Fault{DropReply: true}, false, false},
		} {
			b.faultOn(storage.OpGetMessages, allTries, row.fault)
			_, err := b.jobs.Claim(t.Context(), 1, time.Second)
			if err == nil || Throttled(err) != row.want {
				t.Errorf("Throttled(%.60v) = %t, want %t", err, Throttled(err), row.want)
			}
			if got := TooFast(err); got != row.tooFast {
				t.Errorf("TooFast(%.60v) = %t, want %t", err, got, row.tooFast)
			}
		}
		if Throttled(nil) || TooFast(nil) {
			t.Error("Throttled or TooFast of no error = true")
		}
	})
}

// A renewal that waits for a put-back sends the text that it wrote.
func TestCallsAreSerialized(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		e := Envelope{ID: "a", Kind: "k"}
		l := b.claim(t, encode(t, e))
		b.faultOn(storage.OpUpdateMessage, 1, storage.Fault{Before: time.Second})
		var calls sync.WaitGroup
		calls.Go(func() {
			if err := l.PutBack(t.Context(), e, b.payloads, 30*time.Second); err != nil {
				t.Errorf("PutBack = %v, want no error", err)
			}
		})
		synctest.Wait()
		if err := l.Renew(t.Context(), 30*time.Second); err != nil {
			t.Errorf("Renew behind a put-back = %v, want no error: its turn comes with the new receipt", err)
		}
		calls.Wait()
		if back := decode(t, b.only(t, jobsName).Text); back.PutBackSince.IsZero() || l.Text() != b.only(t, jobsName).Text {
			t.Errorf("message = %+v, want it to keep what the put-back wrote", back)
		}
	})
}

// A worker that claimed its own message again continues under the new receipt.
// A call in flight under the old one does not count as a loss.
// TestAdoptOutOfOrder: of two later claims whose replies come in the wrong order, the
// newer one counts.
func TestAdoptOutOfOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		l := b.claim(t, "x")
		time.Sleep(time.Minute)
		older := b.claimNext(t)
		time.Sleep(time.Minute)
		l.Adopt(b.claimNext(t))
		l.Adopt(older)
		if err := l.Complete(t.Context()); err != nil || len(b.Messages(jobsName)) != 0 {
			t.Errorf("Complete after Adopt = %v, %d messages left, want none", err, len(b.Messages(jobsName)))
		}
	})
}

func TestAdopt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		l := b.claim(t, "x")
		time.Sleep(time.Minute)
		b.faultOn(storage.OpUpdateMessage, 1, storage.Fault{Before: 2 * time.Second})
		var calls sync.WaitGroup
		calls.Go(func() {
			if err := l.Renew(t.Context(), 30*time.Second); err == nil || errors.Is(err, ErrLost) {
				t.Errorf("Renew under the old receipt = %v, want an error that is no loss", err)
			}
		})
		synctest.Wait()
		l.Adopt(b.claimNext(t))
		calls.Wait()
		if err := l.Renew(t.Context(), 30*time.Second); err != nil {
			t.Errorf("Renew after Adopt = %v, want no error", err)
		}
		if err := l.Complete(t.Context()); err != nil || len(b.Messages(jobsName)) != 0 {
			t.Errorf("Complete after Adopt = %v, %d messages left, want none", err, len(b.Messages(jobsName)))
		}
	})
}

// TestEnvelopeIsDecodedOnce: a message's envelope is Decode's result, whether its kind
// was asked for before or not, and it is decoded once.
func TestEnvelopeIsDecodedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		for _, looked := range []bool{false, true} {
			if err := b.jobs.Put(t.Context(), Envelope{ID: "a", Kind: "k"}, 0); err != nil {
				t.Fatal(err)
			}
			l := b.claimNext(t)
			if looked {
				if kind, ok := l.Kind(); kind != "k" || !ok {
					t.Errorf("Kind = %q, %t, want k", kind, ok)
				}
				if kind, ok := l.Kind(); kind != "k" || !ok || l.decoded == nil {
					t.Errorf("Kind the second time = %q, %t, want k, and the envelope kept", kind, ok)
				}
			}
			e, err := l.TakeEnvelope()
			if want, _ := Decode(l.Text()); err != nil || e.ID != want.ID || e.Kind != want.Kind || l.decoded != nil {
				t.Errorf("TakeEnvelope = %+v, %v, want %+v, and nothing kept", e, err, want)
			}
		}
		l := b.claim(t, "no envelope")
		if _, ok := l.Kind(); ok {
			t.Error("a foreign message has a kind")
		}
		if _, err := l.TakeEnvelope(); !errors.Is(err, ErrForeign) {
			t.Errorf("TakeEnvelope of a foreign message = %v, want %v", err, ErrForeign)
		}
	})
}
