package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

// ends are the ways in which a delivery can end: the message, and the handler.
var ends = map[string]struct {
	put    func(b *bench)
	err    error
	change func(run job.Handler) job.Handler
}{
	"a result":          {func(b *bench) { b.PutLarge("a", "k", make([]byte, 100<<10)) }, nil, nil},
	"a break":           {func(b *bench) { b.Put("a", "k", "") }, job.Interrupted(errors.New("wait")), nil},
	"a failure":         {func(b *bench) { b.Put("a", "k", "") }, errors.New("no"), nil},
	"the last failure":  {func(b *bench) { b.Put("a", "k", "") }, errors.New("no"), oneAttempt},
	"a permanent error": {func(b *bench) { b.PutLarge("a", "k", make([]byte, 100<<10)) }, job.Permanent(errors.New("never")), nil},
	"a lost state":      {func(b *bench) { b.Put("a", "k", "") }, job.Permanent(errors.New("never")), withLostState},
	"an output":         {func(b *bench) { b.Put("a", "k", "") }, nil, withOutput},
	"no handler":        {func(b *bench) { b.Put("a", "other", "") }, nil, nil},
	"a paused kind": {func(b *bench) {
		b.Put("a", "k", "")
		b.Follow(&control.Document{PausedKinds: map[string]control.Mark{"k": {}}})
	}, nil, nil},
	"over already": {func(b *bench) {
		b.PutLarge("a", "k", make([]byte, 100<<10))
		text := b.Server.Messages(b.Names.Queue)[0].Text
		b.runOne()
		b.PutText(text)
	}, nil, nil},
	"dead-lettered already": {func(b *bench) {
		b.Put("a", "k", "")
		text := b.Server.Messages(b.Names.Queue)[0].Text
		b.runOne()
		b.PutText(text)
	}, job.Permanent(errors.New("never")), nil},
	"other work": {func(b *bench) {
		b.Put("a", "k", "1")
		b.runOne()
		b.put(queue.Envelope{ID: "a", Kind: "k", ChosenID: true, Payload: queue.BytesPayload([]byte("2"))})
	}, nil, nil},
	"no envelope":    {func(b *bench) { b.PutText("resize image 7") }, nil, nil},
	"would expire":   {putExpiring, errors.New("no"), nil},
	"expires, break": {putExpiring, job.Interrupted(errors.New("w")), nil},
}

func putExpiring(b *bench) { b.PutText(`{"v":1,"id":"a","kind":"k","payload":1}`, time.Hour) }

func oneAttempt(run job.Handler) job.Handler { return job.WithLimits(run, job.Limits{MaxFailures: 1}) }

func withLostState(run job.Handler) job.Handler {
	return job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return nil, errors.New("bad disk") }})
		return run.Run(ctx, j)
	})
}

func withOutput(job.Handler) job.Handler {
	return job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		return nil, j.SendOutput(ctx, "x", strings.NewReader("x"))
	})
}

// ending returns the handlers of a delivery that ends in one of the ways.
func ending(err error, change func(run job.Handler) job.Handler) job.Kinds {
	kinds := handle(func(context.Context, *job.Job) ([]byte, error) { return []byte("r"), err })
	kinds["k"] = job.WithLimits(kinds["k"], job.Limits{Backoff: time.Minute}) // longer than the outages
	if change != nil {
		kinds["k"] = change(kinds["k"])
	}
	return kinds
}

// TestEndsInAnOutage: a delivery ends in the same way if storage is unavailable for some seconds from any of its calls on, or
// refuses all calls for that time, as without a role, or calls like that one alone.
func TestEndsInAnOutage(t *testing.T) {
	for name, row := range ends {
		t.Run(name, func(t *testing.T) {
			kinds := ending(row.err, row.change)
			usual, calls := endInAnOutage(t, kinds, row.put, 0, nil)
			for what, refusal := range map[string]*storage.Error{
				oneRole:       {Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch", Message: oneRole},
				"an outage":   {Status: http.StatusServiceUnavailable, Code: "ServerBusy", Message: "busy"},
				"a lost role": {Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch", Message: "no role"},
			} {
				for at := 1; at <= calls; at += proof.Times(3, 1) {
					if got, _ := endInAnOutage(t, kinds, row.put, at, refusal); got != usual {
						t.Errorf("with %s from call %d on: %s\nwant as without: %s", what, at, got, usual)
					}
				}
			}
		})
	}
}

// oneRole is a refusal of the calls of one operation on one container or queue.
const oneRole = "one lost role"

// endInAnOutage runs one delivery with a refusal of all calls from its call number at on, and returns how it ended, and the number of
// its calls.
func endInAnOutage(t *testing.T, kinds job.Kinds, put func(b *bench), at int, refusal *storage.Error) (end string, calls int) {
	t.Helper()
	onBench(t, kinds, func(t *testing.T, b *bench) {
		put(b)
		lease := b.claim()
		var mu sync.Mutex
		var from time.Time
		var first storage.Call // that is refused
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls == at {
				from, first = time.Now(), c
			}
			alike := c.Operation == first.Operation && c.Container == first.Container && c.Queue == first.Queue
			if from.IsZero() || time.Since(from) > 8*time.Second || refusal.Message == oneRole && !alike {
				return storage.Fault{}
			}
			return storage.Fault{Refuse: refusal}
		})
		b.begin(lease)()
		mu.Lock()
		defer mu.Unlock()
		b.Server.OnCall(nil)
		r, reason := b.Record("a"), ""
		for _, p := range b.PoisonMessages() {
			reason += p.Reason
		}
		added := 0
		for _, m := range b.Server.Messages(b.Names.Queue) {
			if m.ID != lease.ID {
				added++
			}
		}
		end = fmt.Sprintf("record %s %q, generation %d, %d failures, %d interruptions, %d outputs, "+
			"%d states left out; %d messages, %d visible, %d of them new; poison %q; %d outcomes",
			r.Status, r.Reason, r.Generation, r.FailuresTotal, r.Interruptions, r.Outputs.Files, b.counter.WithPrefix("left out"),
			b.MessagesLeft(), b.visible(), added, reason, b.counter.WithPrefix("ended "))
	})
	return end, calls
}

// TestNoRenewalAtTheEnd: a delivery no longer renews its message while the last call for it takes long: a renewal after that call
// would hide the message again.
func TestNoRenewalAtTheEnd(t *testing.T) {
	for name, row := range ends {
		t.Run(name, func(t *testing.T) {
			kinds := ending(row.err, row.change)
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
