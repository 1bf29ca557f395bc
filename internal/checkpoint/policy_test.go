package checkpoint

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/test/property"
)

func TestPolicyNext(t *testing.T) {
	p := Policy{Interval: 5 * time.Second, FirstAfter: 10 * time.Second, TouchEvery: 5 * time.Minute}
	at := func(d time.Duration) time.Time { return noon.Add(d) }
	never := time.Time{}
	for _, row := range []struct {
		name string
		p    Policy
		job  Situation
		now  time.Duration
		due  Due
		wait time.Duration
	}{
		{"just begun", p, Situation{Since: noon, Written: false, WrittenAt: never, Changed: false}, 0, Nothing, 5 * time.Second},
		{"first state, too soon", p, Situation{Since: noon, Written: false, WrittenAt: never, Changed: true}, 3 * time.Second, Nothing,
			2 * time.Second},
		{"first state", p, Situation{Since: noon, Written: false, WrittenAt: never, Changed: true}, 5 * time.Second, DueSave, 0},
		{"nothing reported yet", p, Situation{Since: noon, Written: false, WrittenAt: never, Changed: false}, 7 * time.Second, Nothing,
			3 * time.Second},
		{"nothing reported for 10 s", p, Situation{Since: noon, Written: false, WrittenAt: never, Changed: false}, 10 * time.Second, DueTouch, 0},
		{"resumed, nothing reported", p, Situation{Since: noon, Written: true, WrittenAt: never, Changed: false}, 10 * time.Second, Nothing,
			5 * time.Second},
		{"saved, nothing new", p, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: false}, 2 * time.Minute, Nothing,
			5 * time.Second},
		{"saved, new state too soon", p, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: true}, time.Minute +
			time.Second, Nothing, 4 * time.Second},
		{"saved, new state", p, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: true}, time.Minute + 5*time.Second,
			DueSave, 0},
		{"silent for 5 min", p, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: false}, 6 * time.Minute, DueTouch, 0},
		{"first write failed, retried like any", p, Situation{Since: noon, Written: false, WrittenAt: at(10 * time.Second), Changed: true},
			15 * time.Second, DueSave, 0},
		{"interval longer than the touch: what is written then is the state", Policy{Interval: time.Hour, FirstAfter: 10 * time.Second,
			TouchEvery: 5 * time.Minute}, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: true}, 6 * time.Minute,
			DueSave, 0},
		{"after unclean exits, nothing reported yet", p, Situation{Since: noon, Written: true, WrittenAt: never, Unproven: true}, time.Second,
			Nothing, minInterval},
		{"after unclean exits, first state", p, Situation{Since: noon, Written: true, WrittenAt: never, Changed: true, Unproven: true},
			time.Millisecond, DueSave, 0},
		{"after unclean exits, nothing reported for 10 s", p, Situation{Since: noon, Written: true, WrittenAt: never, Unproven: true},
			10 * time.Second, DueTouch, 0},
		{"after unclean exits, written, new state too soon", Policy{}, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute),
			Changed: true, Unproven: true}, time.Minute + time.Second, Nothing, 4 * time.Second},
		{"zero values are the defaults", Policy{}, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: false},
			2 * time.Minute, Nothing, 5 * time.Second},
		{"zero values are the defaults: save", Policy{}, Situation{Since: noon, Written: true, WrittenAt: at(time.Minute), Changed: true},
			time.Minute + time.Second, Nothing, 4 * time.Second},
	} {
		due, wait := row.p.Next(row.job, at(row.now))
		if due != row.due || wait != row.wait {
			t.Errorf("%s: Next = %d in %s, want %d in %s", row.name, due, wait, row.due, row.wait)
		}
	}
}

// A worker that follows the policy writes never sooner than an interval after the last
// write and never later than TouchEvery, and records every state within an interval and
// the time of the last write.
func TestPolicyKeepsItsBounds(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		p := Policy{
			Interval:   time.Duration(rapid.IntRange(1, 600).Draw(t, "interval")) * time.Second,
			FirstAfter: time.Duration(rapid.IntRange(1, 60).Draw(t, "first")) * time.Second,
			TouchEvery: 10 * time.Minute,
		}
		job := Situation{Since: noon, Written: rapid.Bool().Draw(t, "resumed")}
		now, last := noon, noon
		var reported time.Time // of the oldest state that is not recorded
		for range 200 {
			due, wait := p.Next(job, now)
			if due == Nothing {
				if wait <= 0 || wait > p.Interval {
					t.Fatalf("nothing is due, look again in %s, want up to %s", wait, p.Interval)
				}
				if !job.Changed && rapid.Bool().Draw(t, "report") {
					job.Changed, reported = true, now.Add(wait/2)
				}
				now = now.Add(wait)
				continue
			}
			since := now.Sub(last)
			first := !job.Written
			if since > p.TouchEvery || !first && due == DueSave && since < p.Interval || first && since < min(p.Interval, p.FirstAfter) {
				t.Fatalf("write %d %s after the one before, interval %s", due, since, p.Interval)
			}
			if due == DueTouch && job.Changed {
				t.Fatal("a touch is due although a state is not recorded")
			}
			if due == DueSave && now.Sub(reported) > p.Interval {
				t.Fatalf("state recorded %s after its report, want within %s", now.Sub(reported), p.Interval)
			}
			job.Written, job.WrittenAt, job.Changed, last = true, now, false, now
		}
	})
}

// TestPolicyIsChecked: settings are refused outside of their bounds, and not at them.
func TestPolicyIsChecked(t *testing.T) {
	const touch = 10 * time.Minute // the default
	for _, row := range []struct {
		name  string
		p     Policy
		fault string
	}{
		{"defaults", Policy{}, ""},
		{"the shortest interval", Policy{Interval: minInterval}, ""},
		{"a shorter one", Policy{Interval: minInterval - 1}, "checkpoint interval"},
		{"a negative one", Policy{Interval: -1}, "checkpoint interval"},
		{"the longest interval", Policy{Interval: touch}, ""},
		{"a longer one", Policy{Interval: touch + 1}, "checkpoint interval"},
		{"one eviction an hour", Policy{EvictionRate: 1}, ""},
		{"more evictions", Policy{EvictionRate: 1.5}, "eviction rate"},
		{"negative evictions", Policy{EvictionRate: -0.5}, "eviction rate"},
	} {
		err := row.p.Validate()
		if row.fault == "" && err != nil || row.fault != "" && (err == nil || !strings.Contains(err.Error(), row.fault)) {
			t.Errorf("%s: Validate = %v, want a fault of %q", row.name, err, row.fault)
		}
	}
}

func TestIntervalFor(t *testing.T) {
	auto := DefaultPolicy()
	aWeek := Losses{Watched: 20 * 168 * time.Hour} // 20 VMs
	for _, row := range []struct {
		name string
		p    Policy
		job  Situation
		want time.Duration
	}{
		{"nothing known", auto, Situation{}, 5 * time.Second},
		{"50 ms, one loss in 20 h", auto, Situation{Cost: 50 * time.Millisecond}, 84803 * time.Millisecond},
		{"a tenth of the cost", auto, Situation{Cost: 5 * time.Millisecond}, 26828 * time.Millisecond},
		{"notices that worked for a week", auto, Situation{Cost: 5 * time.Millisecond, Losses: aWeek}, 348822 * time.Millisecond},
		{"warned losses cost a small state nothing", auto, Situation{Cost: 5 * time.Millisecond,
			Losses: Losses{Watched: aWeek.Watched, Warned: 100}}, 348822 * time.Millisecond},
		{"sudden ones do", auto, Situation{Cost: 5 * time.Millisecond, Losses: Losses{Watched: aWeek.Watched, Sudden: 167}},
			26908 * time.Millisecond},
		{"warned ones cost a state that is too large for a notice", auto,
			Situation{Cost: 6 * time.Second, Losses: Losses{Watched: aWeek.Watched, Warned: 3379}}, 201846 * time.Millisecond},
		{"longest", auto, Situation{Cost: 10 * time.Second}, 10 * time.Minute},
		{"shortest", auto, Situation{Cost: time.Microsecond}, 5 * time.Second},
		{"no notices", auto, Situation{Cost: 50 * time.Millisecond, Unwarned: true}, 5 * time.Second},
		{"no notices, but a save takes a minute", auto, Situation{Cost: time.Minute, Unwarned: true}, time.Minute},
		{"after a failed try", auto, Situation{Cost: 50 * time.Millisecond, Failed: true}, 5 * time.Second},
		{"nor longer than a touch may wait", auto, Situation{Cost: time.Hour}, 10 * time.Minute},
		{"given", Policy{Interval: 2 * time.Second}, Situation{Cost: time.Minute, Unwarned: true}, 2 * time.Second},
		{"given, beyond the touch", Policy{Interval: time.Hour}, Situation{}, 10 * time.Minute},
		{"another rate", Policy{EvictionRate: 0.2}, Situation{Cost: 50 * time.Millisecond}, 42376 * time.Millisecond},
	} {
		if got := row.p.IntervalFor(row.job); got.Round(time.Millisecond) != row.want {
			t.Errorf("%s: IntervalFor = %s, want %s", row.name, got, row.want)
		}
	}
}

// The prior weighs as much as one loss, and as the time in which it expects one.
func TestMeanBetween(t *testing.T) {
	p := Policy{EvictionRate: 0.05}
	for _, row := range []struct {
		name string
		job  Situation
		want time.Duration
	}{
		{"nothing observed", Situation{}, 20 * time.Hour},
		{"as expected", Situation{Losses: Losses{Watched: 2000 * time.Hour, Sudden: 100}}, 20 * time.Hour},
		{"one loss at once", Situation{Losses: Losses{Sudden: 1}}, 10 * time.Hour},
		{"none for as long as one was expected", Situation{Losses: Losses{Watched: 20 * time.Hour}}, 40 * time.Hour},
		{"warned, small state", Situation{Cost: time.Second, Losses: Losses{Watched: 180 * time.Hour, Warned: 9}}, 200 * time.Hour},
		{"warned, large state", Situation{Cost: time.Minute, Losses: Losses{Watched: 180 * time.Hour, Warned: 9}}, 20 * time.Hour},
	} {
		if got := p.MeanBetween(row.job); got != row.want {
			t.Errorf("%s: MeanBetween = %s, want %s", row.name, got, row.want)
		}
	}
}

func TestCost(t *testing.T) {
	for _, row := range []struct {
		name  string
		saves []time.Duration
		want  time.Duration
	}{
		{"none", nil, 0},
		{"one tells nothing yet", []time.Duration{time.Minute}, 0},
		{"the smaller of the first two", []time.Duration{time.Minute, time.Second}, time.Second},
		{"steady", []time.Duration{time.Second, time.Second, time.Second, time.Second}, time.Second},
		{"an outage counts for four times the average", []time.Duration{4 * time.Millisecond, 4 * time.Millisecond, time.Minute},
			7 * time.Millisecond},
		{"nothing is free", []time.Duration{0, 0}, time.Microsecond},
	} {
		var c Cost
		for _, took := range row.saves {
			c.Add(took)
		}
		if got := c.Mean(); got != row.want {
			t.Errorf("%s: Mean = %s, want %s", row.name, got, row.want)
		}
	}
	var growing Cost
	for range 2 {
		growing.Add(time.Millisecond)
	}
	for saves := 1; growing.Mean() < 900*time.Millisecond; saves++ {
		if growing.Add(time.Second); saves > 25 {
			t.Fatalf("after %d saves of 1 s the average is %s, want it to follow", saves, growing.Mean())
		}
	}
}

// callTime is the table's time for a call without the sending of its body.
const callTime = 25 * time.Millisecond

// TestTableInTheDocs holds docs/jobs.md to the policy's choices.
func TestTableInTheDocs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "jobs.md"))
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- table: begin -->\n", "<!-- table: end -->"
	_, rest, _ := strings.Cut(string(text), begin)
	got, _, found := strings.Cut(rest, end)
	if want := table(); !found || got != want {
		t.Errorf("docs/jobs.md has\n%s\nbetween its marks, want\n%s", got, want)
	}
}

// table shows the interval for typical states, links and losses.
func table() string {
	const watched = 20_000 * time.Hour // so that the prior does not matter
	rates := []int{1, 5, 20}           // percent per hour
	var out strings.Builder
	out.WriteString("| State | A save takes | 1 % | 5 % | 20 % | Work lost at 5 % |\n|---|---|---|---|---|---|\n")
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
		{"32 GiB", 32 << 30, "100 MB/s", 100e6},
	} {
		cost := callTime + time.Duration(row.bytes/row.rate*float64(time.Second))
		policy := DefaultPolicy()
		fmt.Fprintf(&out, "| %s, %s | %s |", row.state, row.link, rough(cost))
		var lost float64
		for _, percent := range rates {
			// All of them sudden: the danger to a state that fits into a notice is only
			// this part of all evictions.
			job := Situation{Cost: cost, Losses: Losses{Watched: watched, Sudden: percent * int(watched/time.Hour) / 100}}
			interval := policy.IntervalFor(job)
			fmt.Fprintf(&out, " %s |", rough(interval))
			if percent == 5 {
				lost = policy.ShareLost(job)
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

// TestExpected: how long after a write the next one is expected.
func TestExpected(t *testing.T) {
	p := Policy{Interval: time.Minute}
	written := Situation{Written: true, WrittenAt: noon, Cost: 2 * time.Second}
	unproven := Situation{Written: true, Unproven: true}
	for name, row := range map[string]struct {
		job    Situation
		silent time.Duration
		want   time.Duration
	}{
		"it reports states":         {written, 0, 62 * time.Second},
		"no state yet":              {written, 10 * time.Second, time.Minute},
		"no state for long":         {written, 5 * time.Minute, 5 * time.Minute},
		"no state for very long":    {written, time.Hour, 10 * time.Minute},
		"its workers died before":   {unproven, 0, 10 * time.Second},
		"they died, but it is safe": {Situation{Written: true, WrittenAt: noon, Unproven: true}, 0, time.Minute},
	} {
		if got := p.Expected(row.job, row.silent); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}

// TestYoungDalyIsNearTheBest lets a job run through thousands of losses at random
// times, with the interval chosen and with many others: the chosen one wastes
// little more than the best.
func TestYoungDalyIsNearTheBest(t *testing.T) {
	for _, row := range []struct{ cost, mean time.Duration }{
		{50 * time.Millisecond, time.Hour},
		{time.Second, 20 * time.Hour},
		{10 * time.Second, 20 * time.Hour},
		{time.Minute, 5 * time.Hour},
		{5 * time.Minute, 2 * time.Hour},
	} {
		chosen := youngDaly(row.cost, row.mean)
		got := waste(row.cost, row.mean, chosen)
		best, at := math.Inf(1), time.Duration(0)
		for factor := 0.1; factor < 10; factor *= 1.1 {
			other := time.Duration(float64(chosen) * factor)
			if w := waste(row.cost, row.mean, other); w < best {
				best, at = w, other
			}
		}
		t.Logf("save of %s, a loss every %s: %s wastes %.3f %%, the best found is %s with %.3f %%", row.cost, row.mean, chosen, 100*got, at,
			100*best)
		if got > best*1.05 {
			t.Errorf("save of %s, a loss every %s: interval %s wastes %.3f %%, want at most 5 %% more than %.3f %%, of %s",
				row.cost, row.mean, chosen, 100*got, 100*best, at)
		}
	}
}

// waste is the part of the time that did not become progress, over 20,000
// losses at the same random times for every interval.
func waste(cost, mean, interval time.Duration) float64 {
	const losses = 20_000
	random := rand.New(rand.NewPCG(1, 2)) // the same every time, on purpose
	period := float64(interval + cost)
	var all, kept float64
	for range losses {
		life := random.ExpFloat64() * float64(mean)
		all += life
		kept += math.Floor(life/period) * float64(interval) // states saved in full before the loss
	}
	return 1 - kept/all
}
