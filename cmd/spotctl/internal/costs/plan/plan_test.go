package plan

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs/prices"
	"github.com/spotworker/spotworker/internal/replay"
	"github.com/spotworker/spotworker/internal/test/proof"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var today = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

func near(a, b float64) bool { return math.Abs(a-b) < 0.000001 }

// short and long are the two kinds of work of the example in docs/deploy.md.
var (
	short = Work{Boot: 3 * time.Minute, Save: 35 * time.Millisecond}
	long  = Work{Boot: 15 * time.Minute, Save: 2 * time.Minute}
)

func rate(class string) prices.Eviction {
	e, _ := prices.ParseEviction(class)
	return e
}

func offer(size, region string, spot float64, class string) prices.Offer {
	return prices.Offer{Size: size, Region: region, Spot: spot, SpotUSD: spot, Eviction: rate(class),
		Machine: &prices.Machine{Cores: 2, Architecture: "x64", Disks: "SCSI", Spot: true}}
}

func rank(o Options, offers ...prices.Offer) Ranking {
	return Rank(prices.Report{Currency: "USD", Offers: offers}, o, today)
}

// order names the choices from the cheapest on.
func order(r Ranking) string {
	var names []string
	for _, c := range r.Choices {
		names = append(names, strings.TrimPrefix(c.Size, "Standard_")+"/"+c.Region)
	}
	return strings.Join(names, " ")
}

// TestCasesByHand checks three cases that were calculated by hand; docs/deploy.md has the
// first two as its example. A has λ 0.25 (a mean of 14,400 s between evictions), B has
// λ 0.05 (72,000 s). Boot includes the notice of 30 s.
//
//	Case  τ                                     saves          lost work                         boot
//	1 A   √(2·0.035·14400) − 0.035 = 31.7 s     0.00110        (15.86 + 0.035)/14400 = 0.00110   0.25·210/3600 = 0.01458
//	1 B   √(2·0.035·72000) − 0.035 = 71.0 s     0.00049        (35.48 + 0.035)/72000 = 0.00049   0.05·210/3600 = 0.00292
//	2 A   1,739 s, at most 600 s                120/720 = 1/6  (300 + 120)/14400 = 0.02917       0.25·930/3600 = 0.06458
//	2 B   4,037 s, at most 600 s                1/6            420/72000 = 0.00583               0.05·930/3600 = 0.01292
//
// The rest is useful: 0.98321, 0.99610, 0.73958 and 0.81458. Case 3 is a price of 0.020
// that was 0.050 for 9 of 90 days, with a maximum of 0.03: one eviction in 81 days of
// running (λ 0.05 + 1/1944), VMs for 90 % of the time, and 0.020 paid on average.
func TestCasesByHand(t *testing.T) {
	a, b := offer("Standard_D2as_v5", "westeurope", 0.020, "20+"), offer("Standard_D2s_v5", "westeurope", 0.021, "0-5")
	r := rank(Options{Work: short}, a, b)
	if got := order(r); got != "D2as_v5/westeurope D2s_v5/westeurope" || !near(r.Choices[0].Cost, 0.020342) ||
		!near(r.Choices[1].Cost, 0.021082) {
		t.Errorf("case 1 is %s at %.6f and %.6f", got, r.Choices[0].Cost, r.Choices[1].Cost)
	}
	r = rank(Options{Work: long}, a, b)
	if got := order(r); got != "D2s_v5/westeurope D2as_v5/westeurope" || !near(r.Choices[0].Cost, 0.025780) ||
		!near(r.Choices[1].Cost, 0.027042) {
		t.Errorf("case 2 is %s at %.6f and %.6f", got, r.Choices[0].Cost, r.Choices[1].Cost)
	}
	if m := r.Choices[1].Model; m.Interval != 10*time.Minute || !near(m.Saving, 1.0/6) || !near(m.Redone, 0.0291666) ||
		!near(m.Idle, 0.0645833) {
		t.Errorf("case 2 has the model %+v", m)
	}
	c := offer("Standard_D2as_v5", "westeurope", 0.020, "0-5")
	c.History = []prices.Point{{From: today.AddDate(0, 0, -100), USD: 0.02}, {From: today.AddDate(0, 0, -30), USD: 0.05},
		{From: today.AddDate(0, 0, -21), USD: 0.02}}
	r = rank(Options{Work: short, MaxPrice: 0.03}, c)
	past := r.Choices[0].Past
	if past.Evictions != 1 || past.Away != 9*24*time.Hour || past.Watched != window || !near(past.Available(), 0.9) ||
		!near(past.Mean, 0.02) || past.Highest != 0.05 || !near(r.Choices[0].Rate, 0.05+1.0/1944) {
		t.Errorf("case 3 has %+v at a rate of %f", past, r.Choices[0].Rate)
	}
}

func TestExcluded(t *testing.T) {
	fatal := offer("Standard_B2s", "r", 0.01, "0-5")
	fatal.Problems = []prices.Problem{{Fatal: true, Text: "not offered as Spot in r"}}
	quota := offer("Standard_D2s_v5", "r", 0.01, "0-5")
	quota.Quota = &prices.Quota{Used: 90, Limit: 100}
	placement := offer("Standard_D2_v5", "r", 0.01, "0-5")
	placement.Placement = []prices.Placement{{Score: "RestrictedSkuNotAvailable"}}
	for _, c := range []struct {
		offer prices.Offer
		o     Options
		want  string
	}{
		{fatal, Options{Work: short}, "not offered as Spot in r"},
		{quota, Options{Work: short, VMs: 6}, "10 cores left, and 12 are needed"},
		{placement, Options{Work: short}, "not available to this subscription in r"},
		{offer("Standard_D2as_v5", "r", 0.04, "0-5"), Options{Work: short, MaxPrice: 0.03},
			"costs 0.04000 USD, above the maximum price of 0.03000: no VM would start"},
		{offer("Standard_D2as_v5", "r", 0, "0-5"), Options{Work: short}, "its Spot price is not known"},
		{offer("Standard_D2as_v5", "r", 0.01, "20+"), Options{Work: Work{Boot: 5 * time.Hour}}, "no useful time"},
	} {
		r := rank(c.o, c.offer)
		if len(r.Choices) > 0 || len(r.Excluded) != 1 || !strings.Contains(r.Excluded[0].Reason, c.want) {
			t.Errorf("ranked %s and excluded %v, want %q", order(r), r.Excluded, c.want)
		}
	}
	usd := Rank(prices.Report{Currency: "EUR", Offers: []prices.Offer{{Size: "a", SpotUSD: 0.02}}}, Options{Work: short}, today)
	if len(usd.Excluded) != 1 || !strings.Contains(usd.Excluded[0].Reason, "in USD only") {
		t.Errorf("excluded %v, want a price in USD only", usd.Excluded)
	}
}

func TestRemarks(t *testing.T) {
	o := offer("Standard_D2as_v5", "r", 0.02, "")
	o.SpotUSD = 0.025 // the higher price counts
	o.Placement = []prices.Placement{{Zone: "2", Score: "Low"}}
	o.Problems = []prices.Problem{{Text: "two prices"}}
	c := rank(Options{Work: short}, o).Choices[0]
	if got := strings.Join(c.Remarks, "; "); got != "two prices; few or no VMs may be available now in zone 2; eviction rate not known, "+
		"5 % assumed" || c.Price != 0.025 || c.Rate != 0.05 {
		t.Errorf("remarks are %q at %v and %v", got, c.Price, c.Rate)
	}
}

// TestMixes: a choice says why it does not go into one scale set with the best of its region.
func TestMixes(t *testing.T) {
	other := func(size, region string, change func(*prices.Machine)) prices.Offer {
		o := offer(size, region, 0.03, "0-5")
		change(o.Machine)
		return o
	}
	r := rank(Options{Work: short}, offer("Standard_D2as_v5", "westeurope", 0.02, "0-5"),
		other("Standard_D2s_v5", "westeurope", func(m *prices.Machine) { m.Disks = "NVMe, SCSI" }),
		other("Standard_D2s_v6", "westeurope", func(m *prices.Machine) { m.Disks = "NVMe" }),
		other("Standard_D2ds_v5", "westeurope", func(m *prices.Machine) { m.Local = "local NVMe disks" }),
		other("Standard_D2_v5", "westeurope", func(m *prices.Machine) { m.Premium = true }),
		other("Standard_D2ps_v5", "westeurope", func(m *prices.Machine) { m.Architecture = "Arm64" }),
		other("Standard_D2ps_v5", "northeurope", func(m *prices.Machine) { m.Architecture = "Arm64" }))
	want := map[string]string{
		"Standard_D2s_v6 westeurope": "another disk interface", "Standard_D2ds_v5 westeurope": "local NVMe disks instead of",
		"Standard_D2_v5 westeurope": "Premium", "Standard_D2ps_v5 westeurope": "another processor",
	}
	for _, c := range r.Choices {
		got, words := strings.Join(c.Remarks, "; "), want[c.Size+" "+c.Region]
		if strings.Contains(got, "not in one scale set with Standard_D2as_v5: ") != (words != "") || !strings.Contains(got, words) {
			t.Errorf("remarks of %s in %s are %q, want %q", c.Size, c.Region, got, words)
		}
	}
}

// TestCores: sizes are compared by cores if all of them are known.
func TestCores(t *testing.T) {
	small, large := offer("Standard_D2as_v5", "r", 0.02, "0-5"), offer("Standard_D8as_v5", "r", 0.07, "0-5")
	small.Machine, large.Machine = nil, nil
	if got := order(rank(Options{Work: short}, small, large)); got != "D8as_v5/r D2as_v5/r" {
		t.Errorf("by core: %s", got)
	}
	if got := order(rank(Options{Work: short, PerVM: true}, large, small)); got != "D2as_v5/r D8as_v5/r" {
		t.Errorf("by VM: %s", got)
	}
	if r := rank(Options{Work: short}, offer("Basic_A1", "r", 0.01, "0-5"), small); r.PerVM {
		t.Error("cores that Azure lists were not used")
	}
	unknown := offer("Basic_A1", "r", 0.01, "0-5")
	unknown.Machine = nil
	if r := rank(Options{Work: short}, unknown, large); !r.PerVM {
		t.Error("a size without known cores was compared by cores")
	}
	for size, want := range map[string]int{"Standard_D2as_v5": 2, "Standard_E4-2s_v5": 2, "Standard_NC24ads_A100_v4": 24,
		"Standard_DC96as_cc_v5": 96, "Basic_A1": 0} {
		if got := coresOf(prices.Offer{Size: size}); got != want {
			t.Errorf("%s has %d cores, want %d", size, got, want)
		}
	}
}

func TestPast(t *testing.T) {
	day := func(n int, usd float64) prices.Point { return prices.Point{From: today.AddDate(0, 0, -n), USD: usd} }
	for name, c := range map[string]struct {
		history  []prices.Point
		max      float64
		evicted  int
		away     int // days
		watched  int
		highest  float64
		averaged float64
	}{
		"none":              {nil, 0.03, 0, 0, 0, 0, 0},
		"no maximum":        {[]prices.Point{day(10, 0.02), day(5, 0.04)}, -1, 0, 0, 10, 0.04, 0.03},
		"rises twice":       {[]prices.Point{day(10, 0.02), day(8, 0.04), day(6, 0.02), day(4, 0.05)}, 0.03, 2, 6, 10, 0.05, 0.02},
		"begins above":      {[]prices.Point{day(10, 0.04), day(5, 0.02)}, 0.03, 0, 5, 10, 0.04, 0.02},
		"stays above":       {[]prices.Point{day(10, 0.02), day(5, 0.04), day(3, 0.05)}, 0.03, 1, 5, 10, 0.05, 0.02},
		"at the maximum":    {[]prices.Point{day(10, 0.02), day(5, 0.03)}, 0.03, 0, 0, 10, 0.03, 0.025},
		"without dates":     {[]prices.Point{{USD: 0.02}, {USD: 0.05}}, 0.03, 0, 0, 0, 0.05, 0},
		"older than window": {[]prices.Point{day(200, 0.05), day(95, 0.02)}, 0.03, 0, 0, 90, 0.05, 0.02},
		"begins in future":  {[]prices.Point{day(10, 0.02), day(-5, 0.05)}, 0.03, 0, 0, 10, 0.02, 0.02},
	} {
		p := PastOf(c.history, c.max, today)
		days := func(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }
		if p.Evictions != c.evicted || p.Away != days(c.away) || p.Watched != days(c.watched) || p.Highest != c.highest ||
			!near(p.Mean, c.averaged) {
			t.Errorf("%s: %+v, want %+v", name, p, c)
		}
	}
	if always := PastOf([]prices.Point{day(10, 0.05)}, 0.03, today); always.Rate() != 0 || always.Available() != 0 || always.Mean != 0 {
		t.Errorf("always above: %+v", always)
	}
}

func TestCompare(t *testing.T) {
	a, b := offer("Standard_D2as_v5", "r", 0.020, "5-10"), offer("Standard_D2s_v5", "r", 0.010, "0-5")
	dear := offer("Standard_D2as_v5", "far", 0.020, "5-10")
	for name, c := range map[string]struct {
		d    Deployed
		want []string // the last one behind the region to move to
	}{
		"fine":  {Deployed{Sizes: []string{"Standard_D2s_v5"}, Region: "r"}, nil},
		"mixed": {Deployed{Sizes: []string{"Standard_D2as_v5", "Standard_D2s_v5"}, Region: "r"}, nil},
		"dear":  {Deployed{Sizes: []string{"Standard_D2as_v5"}, Region: "r"}, []string{": Standard_D2s_v5 in r is 50 % cheaper"}},
		"dear here": {Deployed{Sizes: []string{"Standard_D2as_v5"}, Region: "far"},
			[]string{"r: Standard_D2s_v5 in r is 50 % cheaper"}},
		"tight": {Deployed{Sizes: []string{"Standard_D2s_v5"}, Region: "r", MaxPrice: 0.0105},
			[]string{"close to the maximum price of 0.01050"}},
		"too low": {Deployed{Sizes: []string{"Standard_D2s_v5"}, Region: "r", MaxPrice: 0.009},
			[]string{"cannot be used: it costs 0.01000 USD, above the maximum"}},
		"elsewhere": {Deployed{Sizes: []string{"Standard_D2s_v5"}, Region: "q"},
			[]string{"nothing is known about it in q", "r: Standard_D2s_v5 in r can be used"}},
		"unavailable": {Deployed{Sizes: []string{"Standard_X"}, Region: "r"}, []string{"nothing is known"}},
	} {
		found, unknown := Compare(c.d, rank(Options{Work: short, MaxPrice: c.d.MaxPrice}, a, b, dear))
		if len(found) != len(c.want) || len(unknown) > 0 {
			t.Errorf("%s: %v, want %q", name, found, c.want)
			continue
		}
		for i, want := range c.want {
			if got := found[i].Region + ": " + found[i].Text; !strings.Contains(got, want) {
				t.Errorf("%s: %v, want %q", name, found, want)
			}
		}
	}
}

// TestCompareWithoutPrices: a source that was down is no reason to change anything.
func TestCompareWithoutPrices(t *testing.T) {
	found, unknown := Compare(Deployed{Sizes: []string{"Standard_D2as_v5"}, Region: "r"},
		rank(Options{Work: short}, offer("Standard_D2as_v5", "r", 0, "0-5")))
	if len(found) > 0 || len(unknown) != 1 {
		t.Errorf("findings %v, unknown %q, want the size as unknown", found, unknown)
	}
}

// TestModelAgreesWithReplay: the model and a replay of the same assumptions expect the same
// shares, within one point.
func TestModelAgreesWithReplay(t *testing.T) {
	for _, rate := range proof.Some(t, 1, []float64{0.05, 0.2, 1}) {
		for _, save := range []time.Duration{35 * time.Millisecond, time.Second, 10 * time.Second} {
			w := Work{Boot: 3 * time.Minute, Save: save}
			replayed, err := replayed(t.Context(), w, rate)
			if err != nil {
				t.Fatal(err)
			}
			model := ModelFor(w, rate)
			t.Logf("%g evictions an hour, a save of %s: plan %.2f %%, replay %.2f %%", rate, save, 100*model.Useful(), 100*replayed)
			if math.Abs(model.Useful()-replayed) > 0.01 {
				t.Errorf("%g evictions an hour, a save of %s: plan %.2f %%, replay %.2f %%", rate, save, 100*model.Useful(), 100*replayed)
			}
		}
	}
}

// replayEvictions is about how many evictions a replay has, so that chance moves its result
// by far less than a point.
const replayEvictions = 2000

// replayed returns the useful share of the paid time in a replay of the assumptions of [ModelFor]:
// VMs that are evicted at random, none with a usable notice, and that have work all the time.
func replayed(ctx context.Context, w Work, rate float64) (float64, error) {
	const week = 7 * 24 * time.Hour
	s := replay.Default()
	s.For.Duration = week
	s.Fleet.VMs = min(max(int(math.Ceil(replayEvictions/(rate*week.Hours()))), 20), 1000)
	s.Fleet.Rate, s.Fleet.Full, s.Fleet.Boot.Duration = rate, 0, w.Boot
	s.Work.Save.Duration, s.Work.Restore.Duration, s.Work.Length.Duration = w.Save, 0, 6*time.Hour
	s.Policy.Rate = min(rate, 1)
	r, err := replay.Run(ctx, s)
	if err != nil {
		return 0, fmt.Errorf("replaying %.3g evictions an hour: %w", rate, err)
	}
	return r.Hours.GoodputBusy() / 100, nil
}
