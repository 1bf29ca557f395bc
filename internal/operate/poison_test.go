package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
