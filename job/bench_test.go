package job

import (
	"encoding/binary"
	"testing"
)

// reportCursor is how a loop with a small state reports: the state is encoded
// into fresh memory each time, as Report asks for.
func reportCursor(j *Job, cursor uint64) {
	j.Report(Progress{
		State: binary.BigEndian.AppendUint64(nil, cursor), Version: 1,
		Fraction: float64(cursor%1000) / 1000, Text: "counting",
	})
}

// BenchmarkReport is the cost of one report as the handler sees it.
func BenchmarkReport(b *testing.B) {
	state := []byte("cursor 1")
	b.Run("state", func(b *testing.B) {
		j := New(Spec{ID: "a"}, nil)
		b.ReportAllocs()
		for b.Loop() {
			j.Report(Progress{State: state, Version: 1, Fraction: 0.5, Text: "half"})
		}
	})
	b.Run("fresh state", func(b *testing.B) {
		j := New(Spec{ID: "a"}, nil)
		b.ReportAllocs()
		for i := uint64(0); b.Loop(); i++ {
			reportCursor(j, i)
		}
	})
	b.Run("fraction only", func(b *testing.B) {
		j := New(Spec{ID: "a"}, nil)
		j.Report(Progress{State: state, Version: 1})
		b.ReportAllocs()
		for b.Loop() {
			j.Report(Progress{Fraction: 0.5})
		}
	})
}

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
