//go:build integration

package chaos

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/chaos"
	"github.com/spotworker/spotworker/internal/replay"
)

// Tolerances between real and virtual time (docs/lab.md).
const (
	nearWork    = 400 * time.Millisecond // work that an interrupted run lost, in the mean
	nearGoodput = 10.0                   // percent
)

// seconds is a figure of the table: the second of a row's two, which the handlers' own traces have.
func seconds(t *testing.T, table, row string) float64 {
	t.Helper()
	var ledger, own float64
	line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(row) + ` .*$`).FindString(table)
	if _, err := fmt.Sscanf(strings.TrimSpace(strings.TrimPrefix(line, row)), "%f s, %f s", &ledger, &own); err != nil {
		t.Fatalf("row %q of the table: %v\n%s", row, err, table)
	}
	return own
}

// number is the nth number of a row of the table.
func number(t *testing.T, table, row string, n int) int {
	t.Helper()
	line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(row) + ` .*$`).FindString(table)
	numbers := regexp.MustCompile(`\d+`).FindAllString(strings.TrimPrefix(line, row), -1)
	if len(numbers) <= n {
		t.Fatalf("row %q of the table has no number %d\n%s", row, n, table)
	}
	value, err := strconv.Atoi(numbers[n])
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// TestReplayAgrees takes VMs away from real workers at any moment, and replays VMs that end as
// often while they run the same jobs with the same interval, visibility and slots. An interrupted
// run loses as much work in both.
func TestReplayAgrees(t *testing.T) {
	for name, ends := range map[string]struct {
		noticed float64
		change  func(*chaos.Config)
		runs    func(table string) int // runs that were interrupted
	}{
		"killed": {0, func(c *chaos.Config) { c.Kills = 40 }, func(table string) int {
			return number(t, table, "  while working, on how many jobs", 1)
		}},
		"evicted": {1, func(c *chaos.Config) { c.For, c.EvictEvery, c.PerSecond = 20*time.Second, 1, 1 }, func(table string) int {
			return 2 * number(t, table, "evicted with notice, of which withdrawn", 0) // a withdrawn eviction interrupts too
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the workers wait most of the time
			c := chaos.DefaultConfig()
			c.AnyMoment, c.Workers, c.JobsAtOnce, c.PerSecond, c.Seed = true, 4, 2, 2, 1
			c.FreezeEvery, c.EvictEvery, c.CutEvery, c.ProgramEvery, c.LackEvery = 0, 0, 0, 0, 0
			c.DuplicateEvery, c.LargeEvery, c.StreamEvery = 0, 0, 0
			c.JobTime, c.Visibility, c.CheckpointInterval = 4*time.Second, 4*time.Second, time.Second
			ends.change(&c)
			var out strings.Builder
			err := chaos.Run(t.Context(), c, &out)
			table := out.String()
			t.Log("\n" + table)
			if err != nil {
				t.Fatal(err)
			}
			useful, lost, runs := seconds(t, table, "  useful"), seconds(t, table, "  lost"), ends.runs(table)
			if runs < 4 {
				t.Fatalf("%d runs were interrupted, too few to compare", runs)
			}
			compare(t, c, ends.noticed, runs, useful, lost)
		})
	}
}

// compare replays a run of chaos.
func compare(t *testing.T, c chaos.Config, noticed float64, runs int, useful, lost float64) {
	t.Helper()
	s := replay.Default()
	s.Fleet.VMs, s.Fleet.Slots, s.Fleet.Full, s.Fleet.Boot.Duration = c.Workers, c.JobsAtOnce, noticed, 500*time.Millisecond
	s.Fleet.Rate = float64(runs) / (useful + lost) * 3600 // of a slot while it works
	s.Work.Length.Duration, s.Work.Save.Duration, s.Work.Restore.Duration = c.JobTime, 10*time.Millisecond, 0
	s.Policy.Interval.Duration, s.Policy.Visibility.Duration = c.CheckpointInterval, c.Visibility
	s.For.Duration = time.Hour
	if noticed > 0 { // a VM of the replay lives on for its notice of 30 s
		s.Fleet.Rate = 1 / (1/s.Fleet.Rate + (30 * time.Second).Hours())
	}
	r, err := replay.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	ended := r.Sudden
	if noticed > 0 {
		ended = r.Warned
	}
	if ended.Runs < 100 {
		t.Fatalf("%d runs of the replay were interrupted, too few to compare", ended.Runs)
	}
	measured, virtual := lost/float64(runs), ended.Redone
	goodput := func(useful, lost float64) float64 { return 100 * useful / (useful + lost) }
	measuredShare, virtualShare := goodput(useful, lost), goodput(r.Hours.Useful, r.Hours.Redone)
	t.Logf("%d runs of real workers lost %.3f s each, %d virtual ones %.3f s; goodput %.1f %% and %.1f %%",
		runs, measured, ended.Runs, virtual, measuredShare, virtualShare)
	if math.Abs(measured-virtual) > nearWork.Seconds() {
		t.Errorf("an interrupted run lost %.3f s, and %.3f s in the replay: more than %s apart", measured, virtual, nearWork)
	}
	if math.Abs(measuredShare-virtualShare) > nearGoodput {
		t.Errorf("goodput %.1f %%, and %.1f %% in the replay: more than %.0f points apart", measuredShare, virtualShare, nearGoodput)
	}
}
