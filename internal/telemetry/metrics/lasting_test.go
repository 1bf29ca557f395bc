package metrics

import (
	"testing"
	"time"
)

// TestLasting: the seconds of a state are added up over its times, the present one too;
// beginning twice or ending twice changes nothing.
func TestLasting(t *testing.T) {
	at := time.Unix(1e9, 0)
	after := func(s int) time.Time { return at.Add(time.Duration(s) * time.Second) }
	var l lasting
	if got := l.seconds(after(9)); got != 0 {
		t.Errorf("before it began: %v s, want 0", got)
	}
	l.end(after(1))
	l.begin(after(10))
	l.begin(after(15))
	if got := l.seconds(after(20)); got != 10 {
		t.Errorf("while it lasts: %v s, want 10", got)
	}
	l.end(after(30))
	l.end(after(40))
	l.begin(after(100))
	if got := l.seconds(after(101)); got != 21 {
		t.Errorf("the second time: %v s, want 21", got)
	}
}
