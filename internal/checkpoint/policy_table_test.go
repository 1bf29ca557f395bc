package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// callTime is what the table reckons for a call besides the sending of its body.
const callTime = 25 * time.Millisecond

// TestTableInTheDocs holds docs/checkpointing.md to what the policy chooses.
func TestTableInTheDocs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "checkpointing.md"))
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- table: begin -->\n", "<!-- table: end -->"
	_, rest, _ := strings.Cut(string(text), begin)
	got, _, found := strings.Cut(rest, end)
	if want := table(); !found || got != want {
		t.Errorf("docs/checkpointing.md has\n%s\nbetween its marks, want\n%s", got, want)
	}
}

// table shows the interval for typical states, links and losses.
func table() string {
	const watched = 20_000 * time.Hour // so that the prior does not matter
	rates := []int{1, 5, 20}           // percent per hour
	var out strings.Builder
	out.WriteString("| State | Link | A save takes | Nothing known | 1 % | 5 % | 20 % | Work lost at 5 % |\n|---|---|---|---|---|---|---|---|\n")
	for _, row := range []struct {
		state string
		bytes float64
		link  string
		rate  float64 // bytes per second
	}{
		{"4 KiB", 4 << 10, "100 MB/s", 100e6},
		{"1 MiB", 1 << 20, "100 MB/s", 100e6},
		{"8 MiB", 8 << 20, "20 MB/s", 20e6},
		{"256 MiB", 256 << 20, "100 MB/s", 100e6},
		{"1 GiB", 1 << 30, "100 MB/s", 100e6},
		{"1 GiB", 1 << 30, "20 MB/s", 20e6},
		{"32 GiB", 32 << 30, "100 MB/s", 100e6},
	} {
		cost := callTime + time.Duration(row.bytes/row.rate*float64(time.Second))
		policy := DefaultPolicy()
		fmt.Fprintf(&out, "| %s | %s | %s | %s |", row.state, row.link, rough(cost), rough(policy.IntervalFor(Situation{Cost: cost})))
		var lost float64
		for _, percent := range rates {
			// All of them sudden: what a state that fits into a notice has to
			// fear is only this part of all evictions.
			job := Situation{Cost: cost, Losses: Losses{Watched: watched, Sudden: percent * int(watched/time.Hour) / 100}}
			interval := policy.IntervalFor(job)
			fmt.Fprintf(&out, " %s |", rough(interval))
			if percent == 5 {
				lost = (float64(interval)/2 + float64(cost)) / float64(policy.MeanBetween(job))
			}
		}
		fmt.Fprintf(&out, " %.2g %% |\n", 100*lost)
	}
	return out.String()
}

// rough is a duration for people: two or three digits.
func rough(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		if text, whole := strings.CutSuffix(d.Round(time.Second).String(), "m0s"); whole {
			return text + "m"
		}
		return d.Round(time.Second).String()
	}
}
