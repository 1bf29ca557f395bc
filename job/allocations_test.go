package job

import (
	"testing"
)

// TestReportIsCheap holds Report to one allocation: what Latest points to. A
// handler may call it for every record it reads.
func TestReportIsCheap(t *testing.T) {
	j := New(Spec{ID: "a"}, nil)
	state := []byte("cursor 1")
	for name, p := range map[string]Progress{
		"a state":    {State: state, Version: 1, Fraction: 0.5, Text: "half"},
		"a fraction": {Fraction: 0.5},
	} {
		if got := testing.AllocsPerRun(100, func() { j.Report(p) }); got > 1 {
			t.Errorf("Report of %s makes %v allocations, want at most 1", name, got)
		}
	}
}
