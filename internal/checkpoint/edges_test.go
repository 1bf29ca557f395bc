package checkpoint

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
	"github.com/spotworker/spotworker/internal/checkpoint/runs"
)

// TestKeysOfARecord: a record has a key for each value that it has, and none for the others, since the
// service refuses empty values.
func TestKeysOfARecord(t *testing.T) {
	const state, key = "0123456789abcdef0123", "k"
	for name, row := range map[string]struct {
		r    Record
		want string
	}{
		"of no work":                  {Record{Status: Open}, "status v"},
		"with half a millisecond":     {Record{Status: Open, RunTime: time.Millisecond / 2, NextWrite: time.Millisecond}, "nextwrite status v"},
		"with a log that is too long": {Record{Status: Open, Log: strings.Repeat("x", MaxLog+1)}, "status v"},
		"with the longest log":        {Record{Status: Open, Log: strings.Repeat("x", MaxLog)}, "log status v"},
		"with a state and its key":    {Record{Status: Open, StateHash: state, StateKey: key}, "statehash statekey status v"},
	} {
		if got := strings.Join(slices.Sorted(maps.Keys(row.r.metadata())), " "); got != row.want {
			t.Errorf("record %s has the keys %s, want %s", name, got, row.want)
		}
	}
}

// TestTextsAreCut: a text that fits is kept whole, and a longer one has both ends within its limit.
func TestTextsAreCut(t *testing.T) {
	const limit = 30
	for name, row := range map[string]struct{ text, want string }{
		"a text that fits":     {strings.Repeat("x", limit), strings.Repeat("x", limit)},
		"a text of one more":   {strings.Repeat("x", limit+1), strings.Repeat("x", 10) + "…" + strings.Repeat("x", 11)},
		"a text with accents":  {strings.Repeat("é", limit), "é…éé"},
		"a text of two limits": {"a" + strings.Repeat("x", 2*limit) + "b", "a" + strings.Repeat("x", 9) + "…" + strings.Repeat("x", 10) + "b"},
	} {
		escaped := escape(row.text, limit)
		if got, err := unescape(escaped); err != nil || got != row.want || len(escaped) > limit {
			t.Errorf("%s is kept as %q (%d bytes), %v, want %q", name, got, len(escaped), err, row.want)
		}
	}
}

// TestLostRuns: a run that was lost did its last part in vain, from its last save on.
func TestLostRuns(t *testing.T) {
	const took = 8 * time.Second
	saved := runs.List("").With(runs.Run{Delivery: 1, Start: noon, Saves: 1, SavedAfter: 5 * time.Second})
	for name, row := range map[string]struct {
		r       Record
		outcome runs.Outcome
		redone  time.Duration
	}{
		"without a save":              {Record{}, runs.Lost, took},
		"after a save":                {Record{Progressed: true, Runs: saved}, runs.Lost, 3 * time.Second},
		"after a save of no progress": {Record{Runs: saved}, runs.Lost, 3 * time.Second},
		"cancelled":                   {Record{}, runs.Cancelled, 0},
	} {
		row.r.Generation, row.r.ClaimedAt, row.r.Owner = 1, noon, "w"
		run, ok := row.r.runEnded(row.outcome, noon.Add(took)).Last(1)
		if !ok || run.Took != took || run.Redone != row.redone || run.Outcome != row.outcome {
			t.Errorf("a run %s = %+v, want it to redo %s of %s", name, run, row.redone, took)
		}
	}
	r := Record{Generation: 1, ClaimedAt: noon}
	if run, _ := r.runEnded(runs.Lost, noon.Add(-time.Hour)).Last(1); run.Took != time.Millisecond {
		t.Errorf("a run that ended before its start took %s, want 1 ms", run.Took)
	}
	if got := (&Record{Generation: 1}).runEnded(runs.Lost, noon); got != "" {
		t.Errorf("the timeline of a record of another program = %q, want none", got)
	}
}

// TestTimelineOfShortJobs: a job that is done in its first delivery without a save has no timeline; with
// a save, or in a later delivery, it has one.
func TestTimelineOfShortJobs(t *testing.T) {
	for name, row := range map[string]struct {
		saves, again bool
		want         int
	}{"in one go": {}, "with a save": {saves: true, want: 1}, "in its second delivery": {again: true, want: 1}} {
		inBubble(t, func(t *testing.T, b *rig) {
			c := b.store.Fresh(ours, "worker-1")
			if row.again {
				b.seed(t, Record{Status: Open, Kind: ours.Kind, PayloadHash: ours.PayloadHash, Generation: 1}, "")
				c = b.acquire(t, ours, "worker-1")
			}
			if row.saves {
				must(t, c.Save(t.Context(), Snapshot{State: []byte("a")}))
			}
			time.Sleep(5 * time.Millisecond)
			must(t, c.Commit(t.Context(), nil))
			all := b.read(t).Runs.Runs()
			if len(all) != row.want || row.want > 0 && (all[0].Outcome != runs.Done || all[0].Took != 5*time.Millisecond) {
				t.Errorf("timeline of a job %s = %+v, want %d runs of 5 ms", name, all, row.want)
			}
		})
	}
}

// TestClaimTakesOverItsMessage: a claim records the facts of its message, and keeps the group. A job without
// a state starts over, with or without progress.
func TestClaimTakesOverItsMessage(t *testing.T) {
	for name, progress := range map[string]Record{
		"a fraction": {Fraction: 0.5}, "a text": {Text: "half"}, "both": {Fraction: 0.5, Text: "half"},
	} {
		inBubble(t, func(t *testing.T, b *rig) {
			progress.Status, progress.Generation, progress.Group = Open, 1, "night"
			b.seed(t, progress, "")
			d := ours
			d.Deadline, d.Estimate, d.InputList, d.Group = noon, time.Hour, PackInputs([]byte("[]")), "day"
			b.acquire(t, d, "worker-1")
			r := b.read(t)
			if !r.Deadline.Equal(noon) || r.Estimate != time.Hour || r.InputList != d.InputList || r.Group != "night" {
				t.Errorf("%s: deadline %s, estimate %s, inputs %q, group %q", name, r.Deadline, r.Estimate, r.InputList, r.Group)
			}
			if r.Fraction != 0 || r.Text != StartsOver {
				t.Errorf("%s: progress %g, %q, want that it starts over", name, r.Fraction, r.Text)
			}
		})
	}
}

// TestRemovedRecord: a job whose record was removed with its state lost its progress, in its ledger too,
// and the state with which the claim began is progress again.
func TestRemovedRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.seed(t, Record{Status: Open, Generation: 1, StateHash: hashOf([]byte("old")), StateSize: 3,
			Ledger: ledger.Ledger{Useful: time.Hour, Redone: time.Minute}}, "old")
		c := b.acquire(t, ours, "worker-1")
		if got := b.read(t).Spent().Useful; got != time.Hour {
			t.Fatalf("useful = %s, want an hour", got)
		}
		b.remove(t)
		if s, err := c.Restore(t.Context()); err != nil || s != nil {
			t.Fatalf("Restore of a removed record = %+v, %v, want no state", s, err)
		}
		if r := b.read(t); r.HasState() || r.Spent().Useful != 0 || r.Spent().Redone != time.Hour+time.Minute {
			t.Errorf("after the removal: state %t, ledger %+v, want all of it redone", r.HasState(), r.Spent())
		}
		keep(c, time.Minute, new(bool))
		time.Sleep(time.Second)
		must(t, c.Save(t.Context(), Snapshot{State: []byte("old"), At: time.Second}))
		if r := b.read(t); !r.Progressed || r.Spent().Useful != time.Second {
			t.Errorf("after the same state: progress %t, ledger %+v, want progress of a second", r.Progressed, r.Spent())
		}
	})
}

// TestRunTimeInMilliseconds: run times of several claims add up to the millisecond.
func TestRunTimeInMilliseconds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.store.Fresh(ours, "worker-1")
		for i := range 3 {
			c.SetFacts(func(f Facts) Facts { f.RunTime = 1500*time.Millisecond + time.Microsecond; return f })
			must(t, c.Break(t.Context(), Snapshot{}))
			want := time.Duration(i+1) * 1500 * time.Millisecond
			if known, got := c.Record().RunTime, b.read(t).RunTime; got != want || known != want {
				t.Errorf("run time = %s, known as %s, want %s", got, known, want)
			}
			c = b.acquire(t, ours, "worker-1")
		}
	})
}

// failingSkip is a stream of unchanged bytes that cannot be passed over.
type failingSkip struct {
	partedStream
	skip func() error
}

func (f *failingSkip) Skip(int64) error { return f.skip() }

// TestSkipFails: an error or a panic of a handler's stream while unchanged bytes are skipped is the
// handler's, and nothing of the state is recorded.
func TestSkipFails(t *testing.T) {
	for name, skip := range map[string]func() error{
		"an error": func() error { return errors.New("it changed") }, "a panic": func() error { panic("no file") },
	} {
		inBubble(t, func(t *testing.T, b *rig) {
			p := b.newParted(1024, 8, 16)
			c := b.store.Fresh(ours, "worker-1")
			for range 2 {
				p.save(t, b, func(s Snapshot) error { return c.Save(t.Context(), s) })
			}
			before := b.body(t)
			p.parts[5] = part{100, p.random(16, 100)}
			err := c.Release(t.Context(), Snapshot{Stream: func() (io.ReadCloser, error) {
				state, at := p.state()
				return &failingSkip{partedStream{bytes.NewReader(state), p, at}, skip}, nil
			}})
			if !errors.Is(err, ErrUnreadable) || b.body(t) != before || b.read(t).Status != Running {
				t.Errorf("Release after %s = %v, want ErrUnreadable and the record before", name, err)
			}
		})
	}
}

// TestPolicyAtItsEdges: a save that just fits into a notice is lost by sudden losses alone, and work
// of unproven claims is saved as often as allowed until there is a state.
func TestPolicyAtItsEdges(t *testing.T) {
	p := Policy{EvictionRate: 0.5}
	lossy := Losses{Watched: 100 * time.Hour, Warned: 50}
	fits, late := p.MeanBetween(Situation{Cost: usableNotice, Losses: lossy}), p.MeanBetween(Situation{Cost: usableNotice + 1, Losses: lossy})
	if fits <= 10*late {
		t.Errorf("mean time between losses = %s for a save that fits into a notice, %s for one that does not", fits, late)
	}
	for name, s := range map[string]Situation{"unwarned": {Unwarned: true}, "failed": {Failed: true}, "unproven": {Unproven: true}} {
		s.Cost = time.Millisecond
		if got := p.IntervalFor(s); got != Shortest {
			t.Errorf("interval of a job that is %s = %s, want the shortest, %s", name, got, Shortest)
		}
	}
	if got := p.IntervalFor(Situation{Cost: time.Second}); got <= Shortest {
		t.Errorf("interval of a healthy job = %s, want more than the shortest, %s", got, Shortest)
	}
	written := Situation{Written: true, Cost: time.Second, WrittenAt: noon}
	fresh, unproven := written, written
	fresh.WrittenAt, unproven.Unproven = time.Time{}, true
	for name, row := range map[string]struct {
		s    Situation
		want time.Duration
	}{
		"a job that was not written": {fresh, p.IntervalFor(fresh) + time.Second},
		"an unproven job":            {unproven, Shortest + time.Second},
	} {
		if got := p.Expected(row.s, 0); got != row.want {
			t.Errorf("next write of %s = %s, want %s", name, got, row.want)
		}
	}
	unproven.WrittenAt = time.Time{}
	if got, want := p.Expected(unproven, 0), p.orDefaults().FirstAfter; got != want {
		t.Errorf("next write of an unproven job without a write = %s, want %s", got, want)
	}
}
