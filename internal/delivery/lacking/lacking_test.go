package lacking

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, time.March, 9, 12, 0, 0, 0, time.UTC)

// TestCount: a message counts while it is hidden, once however often it was delivered, and
// no longer when a worker has its kind.
func TestCount(t *testing.T) {
	var s Set
	if got := s.Count(noon); got != nil {
		t.Errorf("Count of an empty set = %v, want nil", got)
	}
	s.Hide("logstat", "a", noon, time.Minute)
	s.Hide("logstat", "a", noon.Add(time.Second), time.Minute)
	s.Hide("logstat", "b", noon, 2*time.Minute)
	s.Hide("x", "a", noon, time.Minute)
	if got := s.Count(noon.Add(time.Minute)); got["logstat"] != 2 || got["x"] != 1 || len(got) != 2 {
		t.Errorf("Count = %v, want two of logstat and one of x", got)
	}
	s.Found("x", "a")
	if got := s.Count(noon.Add(time.Minute)); len(got) != 1 {
		t.Errorf("Count after Found = %v, want logstat alone", got)
	}
	if got := s.Count(noon.Add(time.Minute + grace + 2*time.Second)); got["logstat"] != 1 {
		t.Errorf("Count later = %v, want the message that is still hidden", got)
	}
	if got := s.Count(noon.Add(time.Hour)); got != nil {
		t.Errorf("Count at the end = %v, want nil", got)
	}
}

// TestBound: a flood of messages takes a bounded amount of memory, and room is free again
// when earlier messages are visible.
func TestBound(t *testing.T) {
	var s Set
	for i := range most + 10 {
		s.Hide("a", fmt.Sprint(i), noon, time.Minute)
	}
	if got := s.Count(noon)["a"]; got != most {
		t.Errorf("Count = %d, want %d", got, most)
	}
	later := noon.Add(time.Hour)
	s.Hide("b", "x", later, time.Minute)
	if got := s.Count(later); got["b"] != 1 || len(got) != 1 {
		t.Errorf("Count = %v, want the new message alone", got)
	}
}
