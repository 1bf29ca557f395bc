package runs

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/test/property"
)

// run returns an entry as a record keeps it: in whole milliseconds.
func run(t *rapid.T) Run {
	ms := func(name string) time.Duration {
		return time.Duration(rapid.Int64Range(0, maxNumber).Draw(t, name)) * time.Millisecond
	}
	return Run{
		Delivery: rapid.IntRange(1, math.MaxInt32).Draw(t, "delivery"), Worker: rapid.StringN(0, 12, 16).Draw(t, "worker"),
		Start: time.UnixMilli(rapid.Int64Range(0, maxNumber).Draw(t, "start")).UTC(), Took: ms("took"),
		Outcome: rapid.SampledFrom(outcomes).Draw(t, "outcome"),
		Saves:   rapid.IntRange(0, math.MaxInt32).Draw(t, "saves"), SavedAfter: ms("saved after"), Redone: ms("redone"),
		Error: rapid.StringN(0, 12, 16).Draw(t, "error"),
	}
}

// TestLists: a list has the last entries, each as it was added last, and is short and printable.
func TestLists(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		var list List
		var want []Run
		for range rapid.IntRange(1, 3*Most).Draw(t, "entries") {
			r := run(t)
			list = list.With(r)
			if n := len(want); n > 0 && want[n-1].Delivery == r.Delivery {
				want = want[:n-1]
			}
			want = append(want, r)
			got := list.Runs()
			if len(list) > MaxBytes || len(got) > Most || len(got) == 0 {
				t.Fatalf("%d entries in %d bytes", len(got), len(list))
			}
			if strings.ContainsFunc(string(list), func(c rune) bool { return c <= ' ' || c > '~' }) {
				t.Fatalf("the list is %q, want printable ASCII", list)
			}
			if diff := cmp.Diff(want[len(want)-len(got):], got); diff != "" {
				t.Fatalf("the entries of %q (-want +got)\n%s", list, diff)
			}
			if last, ok := list.Last(r.Delivery); !ok || last != r {
				t.Fatalf("the last one is %+v, %v, want %+v", last, ok, r)
			}
		}
	})
}

func TestLongNames(t *testing.T) {
	list := List("").With(Run{Delivery: 1, Worker: strings.Repeat("é", 100)})
	if got := list.Runs(); len(got) != 1 || got[0].Worker != "éééééééé" {
		t.Errorf("a long name came back as %+v", got)
	}
}

// TestLongErrors: of a long error the beginning and the end are kept.
func TestLongErrors(t *testing.T) {
	list := List("").With(Run{Delivery: 1, Error: "exited with 1: " + strings.Repeat("é at 0x00; ", 100) + "ValueError: no, such"})
	got := list.Runs()
	if len(list) > 60+maxError || len(got) != 1 || !strings.HasPrefix(got[0].Error, "exited with 1: é") ||
		!strings.HasSuffix(got[0].Error, "ValueError: no, such") {
		t.Errorf("a long error came back as %+v from %d bytes", got, len(list))
	}
}

// Entries that cannot be read are left out; a newer version may add outcomes and fields.
func TestUnreadable(t *testing.T) {
	for list, want := range map[List]int{
		"": 0, "x": 0, ";;": 0, "1,2,3": 0, "0,0,0,0,0,0,done,w": 0, "-1,0,0,0,0,0,done,w": 0, "1,0,99999999999999999,0,0,0,done,w": 0,
		"1,0,0,0,0,0,done,%zz": 0, "1,0,0,0,0,0,done,w;x": 1, "x;1,0,0,0,0,0,exploded,w,more": 1,
	} {
		got := list.Runs()
		if len(got) != want {
			t.Errorf("%q has the entries %+v, want %d", list, got, want)
		}
		if want == 1 && strings.Contains(string(list), "exploded") && got[0].Outcome != Ended {
			t.Errorf("an unknown outcome is %q, want %q", got[0].Outcome, Ended)
		}
	}
}
