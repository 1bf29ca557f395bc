package delivery

import (
	"testing"
	"time"
)

// TestAverage: of many durations each moves the average by a sixteenth.
func TestAverage(t *testing.T) {
	var a average
	for range 100 {
		a.add(0)
	}
	if a.add(16 * time.Second); a.mean() != time.Second {
		t.Errorf("mean = %s, want 1s", a.mean())
	}
}

// TestEndsAddUp: the time added for later jobs adds up to the time that the ends took.
func TestEndsAddUp(t *testing.T) {
	var ends average
	var took, used time.Duration
	for i := range 10_000 {
		used += ends.mean()
		end := time.Duration(10+i%7) * time.Millisecond
		if i%1000 == 500 {
			end = 20 * time.Second // an outage
		}
		ends.add(end)
		took += end
	}
	if off := (used - took).Abs(); off > took/100 {
		t.Errorf("%s were used for ends that took %s, want within 1 %%", used, took)
	}
}
