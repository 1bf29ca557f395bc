package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// ends are the ways in which a delivery can end: the message, and the end of the handler.
var ends = map[string]struct {
	put func(b *bench)
	err error
}{
	"a result":          {func(b *bench) { b.PutLarge("a", "k", make([]byte, 100<<10)) }, nil},
	"a break":           {func(b *bench) { b.Put("a", "k", "") }, job.Interrupted(errors.New("wait"))},
	"a failure":         {func(b *bench) { b.Put("a", "k", "") }, errors.New("no")},
	"a permanent error": {func(b *bench) { b.PutLarge("a", "k", make([]byte, 100<<10)) }, job.Permanent(errors.New("never"))},
	"no handler":        {func(b *bench) { b.Put("a", "other", "") }, nil},
	"a paused kind": {func(b *bench) {
		b.Put("a", "k", "")
		b.Follow(&control.Document{PausedKinds: map[string]control.Mark{"k": {}}})
	}, nil},
	"over already": {func(b *bench) {
		b.PutLarge("a", "k", make([]byte, 100<<10))
		text := b.Server.Messages(b.Names.Queue)[0].Text
		b.runOne()
		b.PutText(text)
	}, nil},
	"other work": {func(b *bench) {
		b.Put("a", "k", "1")
		b.runOne()
		b.put(queue.Envelope{ID: "a", Kind: "k", ChosenID: true, Payload: queue.BytesPayload([]byte("2"))})
	}, nil},
	"no envelope":    {func(b *bench) { b.PutText("resize image 7") }, nil},
	"would expire":   {func(b *bench) { b.PutText(`{"v":1,"id":"a","kind":"k","payload":1}`, time.Hour) }, errors.New("no")},
	"expires, break": {func(b *bench) { b.PutText(`{"v":1,"id":"a","kind":"k","payload":1}`, time.Hour) }, job.Interrupted(errors.New("w"))},
}

// TestEndsInAnOutage: a delivery ends in the same way if storage is unavailable for some seconds from any of its calls on.
func TestEndsInAnOutage(t *testing.T) {
	for name, row := range ends {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(context.Context, *job.Job) ([]byte, error) { return []byte("r"), row.err })
			usual, calls := endInAnOutage(t, kinds, row.put, 0)
			for at := 1; at <= calls; at++ {
				if got, _ := endInAnOutage(t, kinds, row.put, at); got != usual {
					t.Errorf("with an outage from call %d on: %s\nwant as without: %s", at, got, usual)
				}
			}
		})
	}
}

// endInAnOutage runs one delivery with an outage from its call number at on, and returns how it ended, and the number of
// its calls.
func endInAnOutage(t *testing.T, kinds job.Kinds, put func(b *bench), at int) (end string, calls int) {
	t.Helper()
	onBench(t, kinds, func(t *testing.T, b *bench) {
		put(b)
		lease := b.claim()
		var mu sync.Mutex
		var from time.Time
		b.Server.OnCall(func(storage.Call) storage.Fault {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls == at {
				from = time.Now()
			}
			if from.IsZero() || time.Since(from) > 8*time.Second {
				return storage.Fault{}
			}
			return storage.Fault{Refuse: &storage.Error{Status: 503, Code: "ServerBusy", Message: "busy"}}
		})
		b.begin(lease)()
		mu.Lock()
		defer mu.Unlock()
		b.Server.OnCall(nil)
		r, reason := b.Record("a"), ""
		for _, p := range b.PoisonMessages() {
			reason += p.Reason
		}
		end = fmt.Sprintf("record %s %q, generation %d, %d failures, %d interruptions; %d messages, %d visible; poison %q; %d outcomes",
			r.Status, r.Reason, r.Generation, r.FailuresTotal, r.Interruptions, b.MessagesLeft(), b.visible(), reason,
			b.counter.WithPrefix("ended "))
	})
	return end, calls
}

// TestNoRenewalAtTheEnd: a delivery no longer renews its message while the last call for it takes long: a renewal after that call
// would hide the message again.
func TestNoRenewalAtTheEnd(t *testing.T) {
	for name, row := range ends {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(context.Context, *job.Job) ([]byte, error) { return []byte("r"), row.err })
			ends := map[time.Duration]string{}
			for _, takes := range []time.Duration{0, 12 * time.Second} { // a renewal is due after 10 s
				onBench(t, kinds, func(t *testing.T, b *bench) {
					row.put(b)
					lease := b.claim()
					b.delay(takes, func(c storage.Call) bool {
						return c.Operation == storage.OpUpdateMessage || c.Operation == storage.OpDeleteMessage
					})
					updates, deletes := b.counted(storage.OpUpdateMessage), b.counted(storage.OpDeleteMessage)
					b.begin(lease)()
					updates, deletes = b.counted(storage.OpUpdateMessage)-updates, b.counted(storage.OpDeleteMessage)-deletes
					ends[takes] = fmt.Sprintf("%d updates and %d deletions of messages, %d left", updates, deletes, b.MessagesLeft())
				})
			}
			if ends[0] != ends[12*time.Second] {
				t.Errorf("with slow calls: %s\nwant as usual: %s", ends[12*time.Second], ends[0])
			}
		})
	}
}
