package renewal

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/drain"
)

func TestVisibilityGrowsAndShrinks(t *testing.T) {
	v := DefaultVisibility
	for range 10 {
		v = nextVisibility(v, DefaultVisibility, true)
	}
	if v != MaxVisibility {
		t.Errorf("visibility after 10 throttled renewals = %s, want %s", v, MaxVisibility)
	}
	for range 30 {
		v = nextVisibility(v, DefaultVisibility, false)
	}
	if v != DefaultVisibility {
		t.Errorf("visibility after 30 quiet renewals = %s, want %s", v, DefaultVisibility)
	}
}

// TestRefusedRenewal: a refusal stops the job at once where every renewal before
// it was answered.
func TestRefusedRenewal(t *testing.T) {
	for _, row := range []struct {
		doubtful, visibility, want time.Duration // the times from now; 0 for none
	}{
		{0, 30 * time.Second, 0},
		{20 * time.Second, 30 * time.Second, 15 * time.Second},
		{2 * time.Second, 3 * time.Second, 1500 * time.Millisecond},
		{5 * time.Minute, 5 * time.Minute, 5*time.Minute - drain.OneJobGrace},
	} {
		now, doubtful, want := time.Now(), time.Time{}, time.Time{}
		if row.doubtful > 0 {
			doubtful, want = now.Add(row.doubtful), now.Add(row.want)
		}
		if got := keepUntil(doubtful, row.visibility); !got.Equal(want) {
			t.Errorf("keepUntil(now+%s, %s) = %s, want %s", row.doubtful, row.visibility, got, want)
		}
	}
}
