package checkpoint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestFollowUps: the first ids are named once each, in the order of the puts.
func TestFollowUps(t *testing.T) {
	for _, row := range []struct {
		recorded, put, want FollowUps
	}{
		{"", "", ""},
		{"", "a", "a"},
		{"a,b", "", "a,b"},
		{"a,b", "b,c", "a,b,c"}, // another run of the handler puts b again
		{"a,b,c,d,e,f,g,h", "h", "a,b,c,d,e,f,g,h"},
		{"a,b,c,d,e,f,g,h", "i", "a,b,c,d,e,f,g,h,*"},
		{"a,b,c,d,e,f,g,h,*", "j,k", "a,b,c,d,e,f,g,h,*"},
		{"a", "b,*", "a,b,*"},
		{"a,*", "b", "a,*"},
	} {
		if got := row.recorded.With(row.put); got != row.want {
			t.Errorf("%q with %q = %q, want %q", row.recorded, row.put, got, row.want)
		}
	}
	var all FollowUps
	for n := range 10_000 {
		all = all.With(FollowUps(fmt.Sprintf("%032d", n)))
	}
	if ids, more := all.IDs(); len(ids) != maxFollowUps || !more || len(all) > 300 {
		t.Errorf("of 10,000 jobs %q are named, more %t; want %d", all, more, maxFollowUps)
	}
}

// TestFollowUpsOfOthers: text that is no list of ids names no jobs.
func TestFollowUpsOfOthers(t *testing.T) {
	for text, want := range map[FollowUps][]string{
		"":               nil,
		",a,,b,":         {"a", "b"},
		"../x,<b>,a b,c": {"c"},
		FollowUps(strings.Repeat("x", 200) + ",c"): {"c"},
	} {
		if ids, more := text.IDs(); !slices.Equal(ids, want) || more {
			t.Errorf("IDs of %q = %q, %t, want %q, false", text, ids, more, want)
		}
	}
}

// TestFollowUpsStay: every write of a claim keeps the recorded names, and so do a replay
// from scratch and a purge: the jobs were put.
func TestFollowUpsStay(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.store.Fresh(ours, "worker-1")
		c.SetFacts(func(f Facts) Facts { f.FollowUps = f.FollowUps.With("next"); return f })
		must(t, c.Fail(t.Context(), Snapshot{State: []byte("s")}, "no"))
		next, err := b.store.Acquire(t.Context(), ours, b.read(t), "worker-2")
		must(t, err)
		must(t, next.Poison(t.Context(), Snapshot{}, "no"))
		for _, step := range []struct {
			name string
			do   func() (Record, error)
		}{
			{"poison", func() (Record, error) { return Record{}, nil }},
			{"replay from scratch", func() (Record, error) { return b.store.Replay(t.Context(), ours, "me", noon, true) }},
			{"purge", func() (Record, error) { return b.store.Purge(t.Context(), ours, "me", "no") }},
		} {
			_, err := step.do()
			must(t, err)
			if got := b.read(t).FollowUps; got != "next" {
				t.Errorf("after the %s the record names %q, want the follow-up job", step.name, got)
			}
		}
	})
}
