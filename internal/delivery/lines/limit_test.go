package lines

import (
	"fmt"
	"testing"
	"time"
)

func TestLimit(t *testing.T) {
	var l Limit
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
