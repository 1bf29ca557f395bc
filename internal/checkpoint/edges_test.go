package checkpoint

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
	"github.com/spotworker/spotworker/internal/checkpoint/runs"
)

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
