package check

import (
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/overview"
)

// TestSpeed: calls of the middle decide, not the slowest one.
func TestSpeed(t *testing.T) {
	for _, row := range []struct {
		took []time.Duration
		want overview.Level
		text string
	}{
		{[]time.Duration{12 * time.Millisecond, 3 * time.Second, 8 * time.Millisecond}, OK, "take 12ms (median), 3s at most"},
		{[]time.Duration{2*time.Second + time.Millisecond, 2 * time.Second, 8 * time.Millisecond}, Warning, "take 2s (median), 2s at most"},
	} {
		e := Examination{took: row.took}
		if f := e.speed(); f.Level != row.want || !strings.Contains(f.Text, row.text) || (f.Fix != "") != (row.want == Warning) {
			t.Errorf("speed of %v = %+v, want %s with %q", row.took, f, row.want, row.text)
		}
	}
}
