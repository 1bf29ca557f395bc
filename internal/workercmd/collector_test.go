package workercmd

import "testing"

// TestGCPercent checks how far a heap grows until it is collected.
func TestGCPercent(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		live uint64
		want int
	}{
		{0, 800},
		{2 * mib, 800},
		{4 * mib, 800},
		{8 * mib, 400},
		{16 * mib, 200},
		{32 * mib, 100},
		{1024 * mib, 100},
	} {
		if got := gcPercent(tt.live); got != tt.want {
			t.Errorf("gcPercent(%d MiB) = %d, want %d", tt.live/mib, got, tt.want)
		}
	}
}
