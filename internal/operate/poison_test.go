package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// TestFilters: a message is selected if it is named and each filter holds.
func TestFilters(t *testing.T) {
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	item := Item{MessageID: "p-1", Poison: queue.Poison{ID: "a", Kind: "k", Reason: "5 Failures in a row", Worker: "vm_0", PoisonedAt: at,
		MessageID: "m-1"}}
	for name, row := range map[string]struct {
		Selection
		item               *Item // nil for the item above
		meant, itsMessages bool
	}{
		"nothing":              {},
		"all":                  {Selection: Selection{All: true}, meant: true},
		"the job":              {Selection: Selection{Names: []string{"b", "a"}}, meant: true},
		"the poison message":   {Selection: Selection{Names: []string{"p-1"}}, meant: true, itsMessages: true},
		"the original message": {Selection: Selection{Names: []string{"m-1"}}, meant: true, itsMessages: true},
		"another job":          {Selection: Selection{Names: []string{"b"}}},
		"an empty name":        {Selection: Selection{Names: []string{""}}, item: &Item{MessageID: "p-1", Fault: queue.ErrForeign}},
		"a fault":              {Selection: all, item: &Item{Fault: queue.ErrForeign}, meant: true},
		"a fault and a filter": {Selection: Selection{All: true, Filter: Filter{Before: at}}, item: &Item{Fault: queue.ErrForeign}},
		"not named":            {Selection: Selection{Filter: Filter{Kind: "k"}}},
		"kind":                 {Selection: Selection{All: true, Filter: Filter{Kind: "k"}}, meant: true},
		"kind, without a time": {Selection: Selection{All: true, Filter: Filter{Kind: "k"}}, item: &Item{Poison: queue.Poison{Kind: "k"}},
			meant: true},
		"another kind":          {Selection: Selection{All: true, Filter: Filter{Kind: "l", Reason: "failures"}}},
		"reason":                {Selection: Selection{All: true, Filter: Filter{Reason: "fAILURES"}}, meant: true},
		"another reason":        {Selection: Selection{All: true, Filter: Filter{Reason: "timeout", Kind: "k"}}},
		"worker":                {Selection: Selection{All: true, Filter: Filter{Worker: "vm_0"}}, meant: true},
		"another worker":        {Selection: Selection{All: true, Filter: Filter{Worker: "vm_1", Kind: "k"}}},
		"after":                 {Selection: Selection{All: true, Filter: Filter{After: at.Add(-1)}}, meant: true},
		"not after":             {Selection: Selection{All: true, Filter: Filter{After: at, Before: at.Add(1)}}},
		"before":                {Selection: Selection{All: true, Filter: Filter{Before: at.Add(1)}}, meant: true},
		"not before":            {Selection: Selection{All: true, Filter: Filter{Before: at, After: at.Add(-1)}}},
		"all filters":           {Selection: Selection{All: true, Filter: Filter{"k", "row", "vm_0", at.Add(-1), at.Add(1)}}, meant: true},
		"named and filtered":    {Selection: Selection{Names: []string{"p-1"}, Filter: Filter{Kind: "l"}}, itsMessages: true},
		"named, and the filter": {Selection: Selection{Names: []string{"a"}, Filter: Filter{Kind: "k"}}, meant: true},
	} {
		it := item
		if row.item != nil {
			it = *row.item
		}
		if meant, by := row.Has(it); meant != row.meant || by != row.itsMessages {
			t.Errorf("%s: Has = %t, by a message's id %t; want %t, %t", name, meant, by, row.meant, row.itsMessages)
		}
	}
}

// loseText deletes the blobs with the texts of poison messages.
func (b *rig) loseText(t *testing.T) {
	t.Helper()
	lost := 0
	for _, blob := range b.server.Blobs(b.names.Payloads) {
		if !strings.HasPrefix(blob.Name, "poison/") {
			continue
		}
		lost++
		if _, err := b.stores.Account.Container(b.names.Payloads).NewBlobClient(blob.Name).Delete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if lost == 0 {
		t.Fatal("no text is in a blob")
	}
}

// nest puts a poison message around the text of the one on the queue, so many times.
func (b *rig) nest(t *testing.T, times int) {
	t.Helper()
	for i := range times {
		text := b.server.Messages(b.names.Poison)[0].Text
		if _, err := b.stores.Account.Queue(b.names.Poison).ClearMessages(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		b.putPoison(t, queue.Poison{ID: "a", Reason: "a poison message", PoisonedAt: time.Now(), Origin: b.names.Queue,
			MessageID: fmt.Sprint("nest-", i), Body: text})
	}
}

// noPoison is the fault of the text hello.
const noPoison = "not a poison message: it is not base64: illegal base64 data at input byte 4"

// odd are unusual poison messages and their outcomes: action, job, detail.
var odd = map[string]struct {
	put           func(t *testing.T, b *rig)
	kind          string // the default kind
	byMessage     bool   // the messages are selected by their own ids
	replay, purge []string
}{
	"no poison message": {
		put:    func(t *testing.T, b *rig) { b.putText(t, "hello") },
		replay: []string{"refused of : " + noPoison + "; purge can remove it"}, purge: []string{"purged of : " + noPoison},
	},
	"no record and no text": {
		put: func(t *testing.T, b *rig) { b.put(t, given{id: "a", payload: wide, gone: true}); b.loseText(t) },
		replay: []string{"refused of a: the text of its message is gone, and with it the payload; " +
			"put the job again under another id"},
		purge: []string{"purged of a: the text of its message was gone"},
	},
	"no text": {
		put: func(t *testing.T, b *rig) { b.put(t, given{id: "a", payload: wide}); b.loseText(t) },
		replay: []string{"refused of a: the text of its message is gone, and with it the payload; " +
			"put the job again under another id"},
		purge: []string{"purged of a: the text of its message was gone"},
	},
	"no text of a running job": {
		put: func(t *testing.T, b *rig) {
			b.put(t, given{id: "a", payload: wide, status: checkpoint.Running})
			b.loseText(t)
		},
		replay: []string{"dropped of a: its job is active again: it is running"},
		purge:  []string{"dropped of a: its job is active again: it is running"},
	},
	"no text of a job that is done": {
		put: func(t *testing.T, b *rig) {
			b.put(t, given{id: "a", payload: wide, status: checkpoint.Done})
			b.loseText(t)
		},
		replay: []string{"dropped of a: its job is done already"}, purge: []string{"dropped of a: its job is done already"},
	},
	"no text of other work": {
		put: func(t *testing.T, b *rig) {
			b.giveUp(t, given{}, queue.Envelope{ID: "a", Kind: "other"}, b.lease(t))
			b.put(t, given{id: "a", payload: wide, gone: true})
			b.loseText(t)
		},
		replay: []string{`refused of a: the id was used for other work: its kind is "other"`},
		purge:  []string{`refused of a: the id was used for other work: its kind is "other"`},
	},
	"no text and no kind": {
		put: func(t *testing.T, b *rig) {
			b.giveUp(t, given{}, queue.Envelope{ID: "a", Kind: "other"}, b.lease(t))
			b.putPoison(t, queue.Poison{ID: "a", Reason: "no", PoisonedAt: time.Now(), MessageID: "m-1", BodyBlob: "poison/m-1"})
		},
		replay: []string{"refused of a: the text of its message is gone, and with it the payload; " +
			"put the job again under another id"},
		purge: []string{"purged of a: the text of its message was gone"},
	},
	"no text and a newer record": {
		put: func(t *testing.T, b *rig) {
			b.put(t, given{id: "a", payload: wide})
			b.loseText(t)
			b.setVersion(t, "a", "99")
		},
		replay: []string{"refused of a: record cannot be read by this version"},
		purge:  []string{"refused of a: record cannot be read by this version"},
	},
	"no text and no valid id": {
		put: func(t *testing.T, b *rig) {
			b.putPoison(t, queue.Poison{ID: "a b", Kind: "k", Reason: "no", PoisonedAt: time.Now(), MessageID: "m-1", BodyBlob: "poison/m-1"})
		},
		replay: []string{"refused of : the text of its message is gone, and with it the payload; put the job again under another id"},
		purge:  []string{"purged of : the text of its message was gone"},
	},
	"another program's, without a kind": {
		put: func(t *testing.T, b *rig) {
			b.putPoison(t, queue.Poison{ID: "x", Reason: "no", PoisonedAt: time.Now(), MessageID: "m-1", Body: "hello"})
		},
		kind:   "k",
		replay: []string{"refused of x: " + errNoKind.Error()}, purge: []string{"purged of x: " + errNoKind.Error()},
	},
	"another program's, of the default kind": {
		put: func(t *testing.T, b *rig) {
			b.putPoison(t, queue.Poison{Reason: "neither", PoisonedAt: time.Now(), MessageID: "m-1", Body: "hello"})
		},
		kind:   "k",
		replay: []string{"replayed of m-1: from scratch: its record is gone"}, purge: []string{"purged of m-1: neither"},
	},
	"another program's, without an id": {
		put: func(t *testing.T, b *rig) {
			b.putPoison(t, queue.Poison{Kind: "k", Reason: "no", PoisonedAt: time.Now(), MessageID: "m-1", Body: "hello"})
		},
		replay: []string{"replayed of : as it was, although this version cannot read it: it cannot be a job: job id"},
		purge:  []string{"purged of : it cannot be a job: job id"},
	},
	"a message of a newer version": {
		put: func(t *testing.T, b *rig) {
			b.putPoison(t, queue.Poison{ID: "a", Reason: "version 3", PoisonedAt: time.Now(), MessageID: "m-1",
				Body: `{"v":3,"id":"a","kind":"k"}`})
		},
		replay: []string{"replayed of a: as it was, although this version cannot read it: "}, purge: []string{"purged of a: "},
	},
	"a text in a blob": {
		put:    func(t *testing.T, b *rig) { b.put(t, given{id: "a", payload: wide, state: "half"}) },
		replay: []string{"replayed of a: from its state, 50 % done"}, purge: []string{"purged of a: 5 failures in a row"},
	},
	"a payload in a blob": {
		put:    func(t *testing.T, b *rig) { b.put(t, given{id: "a", payload: wide, offload: true, outputs: 2}) },
		replay: []string{"replayed of a: from its 2 outputs: there is no recorded state"}, purge: []string{"purged of a: 5 failures in a row"},
	},
	"twice": {
		put: func(t *testing.T, b *rig) { b.put(t, given{id: "a", twice: true}) },
		replay: []string{"replayed of a: from scratch: there is no recorded state",
			"dropped of a: it is a duplicate; the job was replayed just now"},
		purge: []string{"purged of a: 5 failures in a row", "dropped of a: it is a duplicate; the job was purged just now"},
	},
	"two messages of a job": {
		put: func(t *testing.T, b *rig) {
			b.put(t, given{id: "a"})
			time.Sleep(3 * time.Second)
			b.put(t, given{id: "a", gone: true})
			time.Sleep(3 * time.Second)
		},
		replay: []string{"replayed of a: from scratch: there is no recorded state",
			"dropped of a: it is a duplicate; the job was replayed just now"},
		purge: []string{"purged of a: 5 failures in a row", "dropped of a: it is a duplicate; the job was purged just now"},
	},
	"a job that is done": {
		put: func(t *testing.T, b *rig) {
			b.put(t, given{id: "a", payload: wide, offload: true, status: checkpoint.Done})
		},
		replay: []string{"dropped of a: its job is done already"}, purge: []string{"dropped of a: its job is done already"},
	},
	"other work, by its message": {
		put: func(t *testing.T, b *rig) {
			b.giveUp(t, given{}, queue.Envelope{ID: "a", Kind: "other"}, b.lease(t))
			b.put(t, given{id: "a", gone: true})
		},
		byMessage: true,
		replay:    []string{"refused of a: open record of job a: the id was used for other work"},
		purge:     []string{"dropped of a: the record was not changed: open record of job a: the id was used for other work"},
	},
	"nested, a text in a blob": {
		put: func(t *testing.T, b *rig) {
			b.put(t, given{id: "a", payload: queue.BytesPayload([]byte(strings.Repeat("n", 20<<10)))})
			b.nest(t, 1)
			if b.payloads() != 1 {
				t.Fatalf("texts in blobs = %d, want the outer message's", b.payloads())
			}
		},
		replay: []string{"replayed of a: from scratch: there is no recorded state"}, purge: []string{"purged of a: 5 failures in a row"},
	},
	"nested deeply": {
		put:    func(t *testing.T, b *rig) { b.put(t, given{id: "a"}); b.nest(t, maxWrapped) },
		replay: []string{"replayed of a: from scratch: there is no recorded state"}, purge: []string{"purged of a: 5 failures in a row"},
	},
	"nested too deeply": {
		put:    func(t *testing.T, b *rig) { b.put(t, given{id: "a"}); b.nest(t, maxWrapped+1) },
		replay: []string{"replayed of a: as it was, although this version cannot read it: "}, purge: []string{"purged of a: "},
	},
}

// setVersion changes the version of a job's record.
func (b *rig) setVersion(t *testing.T, id, version string) {
	t.Helper()
	blob := b.stores.Account.Container(b.names.Records).NewBlobClient(pathOf(b, id))
	if _, err := blob.SetMetadata(t.Context(), map[string]*string{"v": &version, "status": new("done")}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestOddMessages: each message has its outcome, a message that is gone leaves no blob, and each
// refused storage call is reported.
func TestOddMessages(t *testing.T) {
	for name, row := range odd {
		for command, want := range map[string][]string{"replay": row.replay, "purge": row.purge} {
			t.Run(name+", "+command, func(t *testing.T) {
				act := func(t *testing.T, b *rig) error {
					s := all
					if row.byMessage {
						s = Selection{Names: []string{b.server.Messages(b.names.Poison)[0].ID}}
					}
					b.DefaultKind = row.kind
					if command == "purge" {
						return b.Purge(t.Context(), s, b.report)
					}
					return b.Replay(t.Context(), s, false, b.report)
				}
				calls := 0
				inBubble(t, func(t *testing.T, b *rig) {
					row.put(t, b)
					if err := act(t, b); err != nil {
						t.Error(err)
					}
					calls = b.link.count()
					b.expectOutcomes(t, want)
				})
				for at := 1; at <= calls; at++ {
					inBubble(t, func(t *testing.T, b *rig) {
						row.put(t, b)
						what := b.refuseCall(at)
						if err := told(b, act(t, b)); err == nil && what() != "UpdateMessage" { // messages stay hidden for two minutes
							t.Errorf("call %d, %s: it was refused, and nothing is reported", at, what())
						}
					})
				}
			})
		}
	}
}

// refuseCall refuses one call, counted from now, and returns its operation.
func (b *rig) refuseCall(at int) (operation func() string) {
	var mu sync.Mutex // guards calls and what
	calls, what := 0, ""
	b.server.OnCall(func(c storage.Call) storage.Fault {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls != at {
			return storage.Fault{}
		}
		what = c.Operation
		return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return what
	}
}

// expectOutcomes compares what was told with action, job and the start of the detail.
func (b *rig) expectOutcomes(t *testing.T, want []string) {
	t.Helper()
	var got []string
	left, dropped := 0, false
	for i, o := range b.told {
		if !o.gone() {
			left++
		}
		dropped = dropped || o.Action == Dropped && strings.HasPrefix(o.Detail, "its job is done")
		text := fmt.Sprintf("%s of %s: %s", o.Action, o.Job, o.Detail)
		if i < len(want) && strings.HasPrefix(text, want[i]) {
			text = want[i]
		}
		got = append(got, text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if n, visible := b.poisoned(); n != left || visible != left {
		t.Errorf("poison messages left = %d, visible %d, want %d", n, visible, left)
	}
	for _, blob := range b.server.Blobs(b.names.Payloads) {
		if left == 0 && (strings.HasPrefix(blob.Name, "poison/") || dropped) {
			t.Errorf("blob %s is left", blob.Name)
		}
	}
}

// TestReplayedFrom: the detail names the start of a replayed job.
func TestReplayedFrom(t *testing.T) {
	state := checkpoint.Record{Version: checkpoint.Version, StateHash: strings.Repeat("a", 64), StateSize: 1}
	half, little := state, state
	half.Fraction, little.Fraction = 0.5, 0.01
	for want, was := range map[string]checkpoint.Record{
		"from its state":                           state,
		"from its state, 50 % done":                half,
		"from its state, 1 % done":                 little,
		"from scratch: its record is gone":         {},
		"from scratch: there is no recorded state": {Version: checkpoint.Version},
	} {
		if got := replayedFrom(was, false); got != want {
			t.Errorf("replayedFrom = %q, want %q", got, want)
		}
	}
	if got := replayedFrom(half, true); got != "from scratch" {
		t.Errorf("replayedFrom from scratch = %q", got)
	}
}

// TestReportFails: an error of the report ends the run after the jobs in progress. Other
// messages stay, visible.
func TestReportFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		for i := range 40 {
			b.put(t, given{id: fmt.Sprintf("job-%d", i)})
		}
		enough := errors.New("the pipe is closed")
		err := b.Replay(t.Context(), all, false, func(o Outcome) error { _ = b.report(o); return enough })
		n, visible := b.poisoned()
		if !errors.Is(err, enough) || !errors.Is(err, errReport) || len(b.told) > parallel || n != 40-len(b.told) || visible != n {
			t.Errorf("Replay = %v after %d outcomes, %d messages left, %d visible; want the error, at most %d outcomes", err, len(b.told), n,
				visible, parallel)
		}
	})
}

// TestEndedBefore: a run whose context has ended does nothing and returns the cause.
func TestEndedBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.put(t, given{id: "a"})
		cause := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if err := b.Replay(ctx, all, false, b.report); !errors.Is(err, cause) || len(b.told) > 0 || b.link.count() > 0 {
			t.Errorf("Replay = %v, %d outcomes, %d calls, want the cause and nothing done", err, len(b.told), b.link.count())
		}
	})
}

// TestSlowReader: messages are hidden for two minutes. A message that appears again during the
// scan is listed once and is visible at the end.
func TestSlowReader(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		for i := range 40 {
			b.put(t, given{id: fmt.Sprintf("job-%d", i)})
		}
		listed := map[string]int{}
		err := b.All(t.Context(), func(it Item) error {
			if len(listed) == 0 {
				time.Sleep(hold - time.Second)
				if _, visible := b.poisoned(); visible != 40-queue.MaxClaim {
					t.Errorf("visible messages while the first is read = %d, want %d", visible, 40-queue.MaxClaim)
				}
				time.Sleep(2 * time.Second)
				if _, visible := b.poisoned(); visible != 40 {
					t.Errorf("visible messages after %s = %d, want all", hold, visible)
				}
			}
			if listed[it.Poison.ID]++; listed[it.Poison.ID] > 1 {
				return errors.New("it was listed before")
			}
			return nil
		})
		if _, visible := b.poisoned(); err != nil || len(listed) != 40 || visible != 40 {
			t.Errorf("All = %v, %d messages listed, %d visible, want 40", err, len(listed), visible)
		}
	})
}

// TestSlowRelease: an interrupted run releases its messages in up to 10 s, and no longer.
func TestSlowRelease(t *testing.T) {
	for _, row := range []struct {
		call    time.Duration // of each release
		visible int
		most    time.Duration
	}{{time.Second, 20, 5 * time.Second}, {time.Hour, 0, tidyTimeout}} {
		inBubble(t, func(t *testing.T, b *rig) {
			for i := range 20 {
				b.put(t, given{id: fmt.Sprintf("job-%d", i)})
			}
			b.server.OnCall(func(c storage.Call) storage.Fault {
				if c.Operation == storage.OpUpdateMessage {
					return storage.Fault{Before: row.call}
				}
				return storage.Fault{}
			})
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now()
			err := b.All(ctx, func(Item) error { cancel(); return ctx.Err() })
			if _, visible := b.poisoned(); !errors.Is(err, context.Canceled) || visible != row.visible || time.Since(began) > row.most {
				t.Errorf("releases of %s each: All = %v after %s, %d messages visible, want %d within %s", row.call, err, time.Since(began),
					visible, row.visible, row.most)
			}
		})
	}
}

// TestLooksAtOddMessages: a look shows the text of a message without a job, and returns an error
// of the count.
func TestLooksAtOddMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.putText(t, "hello")
		b.putPoison(t, queue.Poison{Reason: "neither", PoisonedAt: time.Now(), MessageID: "m-1", Body: "hello"})
		b.put(t, given{id: "gone", gone: true})
		items, _, err := b.Peek(t.Context())
		if err != nil || len(items) != 3 {
			t.Fatalf("Peek = %d items, %v", len(items), err)
		}
		for i, want := range []string{"hello", "hello", b.jobText(t, items[2])} {
			if text, record, err := b.Lookup(t.Context(), items[i]); text != want || record != nil || err != nil {
				t.Errorf("Lookup of message %d = %q, %v, %v, want %q without a record", i, text, record, err, want)
			}
		}
		b.put(t, given{id: "wide", payload: wide})
		items, _, err = b.Peek(t.Context())
		if err != nil || len(items) != 4 {
			t.Fatalf("Peek = %d items, %v", len(items), err)
		}
		b.refuse(b.names.Payloads, storage.OpGetBlob)
		if _, _, err := b.Lookup(t.Context(), items[3]); err == nil {
			t.Error("Lookup of a text that cannot be read = nil, want an error")
		}
		for i := range queue.MaxClaim {
			b.put(t, given{id: fmt.Sprint("job-", i), gone: true})
		}
		b.refuseCall(2)
		if items, about, err := b.Peek(t.Context()); err == nil || len(items) != queue.MaxClaim || about != queue.MaxClaim {
			t.Errorf("Peek without a count = %d of %d, %v, want the messages and an error", len(items), about, err)
		}
	})
}

func (b *rig) jobText(t *testing.T, it Item) string {
	t.Helper()
	text, err := it.Poison.Original(t.Context(), b.stores.Payloads)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
