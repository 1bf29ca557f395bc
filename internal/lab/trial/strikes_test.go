package trial

import (
	"testing"
	"time"
)

// TestStrikeFor chooses an eviction that takes effect before the program is done.
func TestStrikeFor(t *testing.T) {
	took := func(d time.Duration, saves int) *course {
		began := time.Now()
		run := &programRun{Started: began, Ended: began.Add(d), Saves: make([]save, saves)}
		if saves > 0 {
			run.FirstSign = began.Add(d / time.Duration(saves))
		}
		return &course{Runs: []*programRun{run}, Ended: run.Ended, Done: true}
	}
	for _, test := range []struct {
		name  string
		usual time.Duration
		saves int
		n     int
		haste int
		want  strike
	}{
		{"shorter than a poll", 900 * time.Millisecond, 1, 0, 0, kill},
		{"a notice may miss it", 1700 * time.Millisecond, 2, 0, 0, stop},
		{"nor is it cut off", 2900 * time.Millisecond, 2, 4, 0, stop},
		{"short, without notice", 1700 * time.Millisecond, 2, 1, 0, kill},
		{"short, and saves often", 2 * time.Second, 30, 0, 0, notice},
		{"long", 4 * time.Second, 3, 0, 0, notice},
		{"long, cut off", 4 * time.Second, 3, 4, 0, cutOff},
		{"long, but was faster than the first eviction", 4 * time.Second, 3, 0, 1, stop},
		{"the same, without notice", 4 * time.Second, 3, 1, 1, kill},
		{"saves nothing", time.Minute, 0, 1, 0, stop},
		{"saves nothing, third time", time.Minute, 0, 2, 0, midSave},
	} {
		plain := took(test.usual, test.saves)
		seen := observed{plain: []*course{plain, plain}, evicted: took(0, 0), haste: test.haste}
		if got := seen.strikeFor(test.n); got != test.want {
			t.Errorf("%s: eviction %d of a program that takes %s = %s, want %s", test.name, test.n, test.usual, got, test.want)
		}
	}
}
