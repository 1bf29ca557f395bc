package delivery

import (
	"fmt"
	"testing"
	"time"
)

func TestLineLimit(t *testing.T) {
	var l lineLimit
	at := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	lines := func(kind string, n int) (due, leftOut int) {
		for range n {
			ok, more := l.Allow(kind, at)
			if ok {
				due++
			}
			leftOut += more
		}
		return due, leftOut
	}
	if due, _ := lines("a", 20_000); due != 1 {
		t.Errorf("20,000 messages of one kind log %d lines, want 1", due)
	}
	if due, _ := lines("b", 2); due != 1 {
		t.Errorf("two of another kind log %d lines, want 1", due)
	}
	at = at.Add(limitPeriod)
	if due, leftOut := lines("a", 3); due != 1 || leftOut != 19_999 {
		t.Errorf("a minute later %d lines tell of %d more, want 1 and 19999", due, leftOut)
	}
	due := 0
	for i := range 10_000 {
		d, _ := lines(fmt.Sprint("kind-", i), 1)
		due += d
	}
	if due > limitKinds+1 || len(l.lines) > limitKinds+1 {
		t.Errorf("10,000 kinds log %d lines and are remembered as %d, want at most %d", due, len(l.lines), limitKinds+1)
	}
}

// TestLineLimitForgets: a line whose minute is over gives its room to another kind, unless lines were left out since.
func TestLineLimitForgets(t *testing.T) {
	var l, full, other lineLimit
	at := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	for i := range limitKinds {
		l.Allow(fmt.Sprint("kind-", i), at)
		full.Allow(fmt.Sprint("kind-", i), at)
		other.Allow(fmt.Sprint("kind-", i), at)
	}
	for i := range 2 { // while there is no room for other kinds
		if due, _ := other.Allow("kind-1", at.Add(limitPeriod)); due != (i == 0) {
			t.Errorf("line %d of a kind that has one, after a minute: due %t, want the first", i+1, due)
		}
	}
	for i, kind := range []string{"x", "y", "x"} {
		if due, _ := full.Allow(kind, at.Add(limitPeriod)); due != (i < 2) {
			t.Errorf("line %d after a minute, of %s: due %t; want a line of each kind", i+1, kind, due)
		}
	}
	l.Allow("kind-0", at)
	if first, _ := l.Allow("x", at); !first {
		t.Error("the first of the further kinds has no line")
	}
	if second, _ := l.Allow("y", at); second {
		t.Error("the second of the further kinds has a line, want one that both share")
	}
	at = at.Add(limitPeriod)
	if due, _ := l.Allow("x", at); !due || len(l.lines) != 3 { // kind-0, x, and the shared line
		t.Errorf("a minute later: due %t, %d lines; want a line of its own, and two that have more to tell", due, len(l.lines))
	}
	if due, leftOut := l.Allow("kind-0", at); !due || leftOut != 1 {
		t.Errorf("the first kind: due %t, %d left out; want one", due, leftOut)
	}
}
