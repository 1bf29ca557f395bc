package plan

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs/prices"
)

// Options say what to rank, and how.
type Options struct {
	Work
	MaxPrice float64 // USD an hour; not positive for none
	VMs      int     // that the quota must have room for
	PerVM    bool    // rank by the cost of a VM's hour instead of a core's
}

// Choice is an offer that can be deployed.
type Choice struct {
	prices.Offer
	Price   float64 // of an hour, in the report's currency
	Rate    float64 // evictions per hour of a VM, for capacity and price
	Assumed bool    // whether the rate for capacity is not known
	Model   Model
	Past    Past
	Cores   int     // 0 if not known
	Cost    float64 // of a useful hour of a VM
	PerCore float64 // of a useful hour of a core; 0 if the cores are not known
	Remarks []string
}

// Excluded is an offer that is not ranked.
type Excluded struct {
	Size, Region, Reason string
	Unknown              bool // whether only its price could not be found out
}

// priceUnknown is the reason of an offer whose price could not be found out.
const priceUnknown = "its Spot price is not known"

// Ranking is the choices, the cheapest first, and the excluded offers.
type Ranking struct {
	Currency string
	PerVM    bool
	Choices  []Choice
	Excluded []Excluded
}

// Rank ranks the offers of a report.
func Rank(report prices.Report, o Options, now time.Time) Ranking {
	r := Ranking{Currency: report.Currency, PerVM: o.PerVM}
	for _, offer := range report.Offers {
		choice, reason := evaluate(offer, report.Currency, o, now)
		if reason != "" {
			r.Excluded = append(r.Excluded, Excluded{offer.Size, offer.Region, reason, reason == priceUnknown})
			continue
		}
		r.Choices = append(r.Choices, choice)
	}
	if !o.PerVM && slices.ContainsFunc(r.Choices, func(c Choice) bool { return c.Cores == 0 }) {
		r.PerVM = true // a choice without cores cannot be compared by cores
	}
	slices.SortStableFunc(r.Choices, func(a, b Choice) int {
		return cmp.Or(cmp.Compare(r.Key(a), r.Key(b)), cmp.Compare(a.Rate, b.Rate), strings.Compare(a.Size+a.Region, b.Size+b.Region))
	})
	r.remarkMixes()
	return r
}

// remarkMixes says of choices why they do not go into one scale set with the best one of their region.
func (r Ranking) remarkMixes() {
	best := map[string]Choice{}
	for i, c := range r.Choices {
		first, known := best[c.Region]
		switch {
		case c.Machine == nil:
		case !known:
			best[c.Region] = c
		default:
			if why := first.Machine.Unlike(*c.Machine); why != "" {
				r.Choices[i].Remarks = append(r.Choices[i].Remarks, fmt.Sprintf("not in one scale set with %s: %s", first.Size, why))
			}
		}
	}
}

// Key returns what choices are ranked by.
func (r Ranking) Key(c Choice) float64 {
	if r.PerVM {
		return c.Cost
	}
	return c.PerCore
}

// evaluate returns the choice, or why the offer is excluded.
func evaluate(offer prices.Offer, currency string, o Options, now time.Time) (c Choice, reason string) {
	c = Choice{Offer: offer, Cores: coresOf(offer), Past: PastOf(offer.History, o.MaxPrice, now)}
	for _, p := range offer.Problems {
		if p.Fatal {
			return c, p.Text
		}
		c.Remarks = append(c.Remarks, p.Text)
	}
	// Of two prices that disagree the higher one counts.
	if c.Price = offer.Spot; currency == prices.USD {
		c.Price = max(offer.Spot, offer.SpotUSD)
	}
	if reason = c.refused(currency, o); reason != "" {
		return c, reason
	}
	c.Rate = offer.Eviction.High / 100
	if c.Assumed = c.Rate <= 0; c.Assumed {
		c.Rate = DefaultRate()
		c.Remarks = append(c.Remarks, fmt.Sprintf("eviction rate not known, %g %% assumed", 100*c.Rate))
	}
	c.Rate += c.Past.Rate()
	if c.Past.Evictions > 0 {
		c.Remarks = append(c.Remarks,
			fmt.Sprintf("the maximum price would have evicted %d times in %d days and kept VMs away %.0f %% of the time",
				c.Past.Evictions, int(c.Past.Watched.Hours()/24), 100*(1-c.Past.Available())))
	}
	c.Model = ModelFor(o.Work, c.Rate)
	useful := c.Model.Useful()
	if useful <= 0 {
		return c, fmt.Sprintf("no useful time: at %.0f %% evictions an hour, boot, saves and lost work take all of it", 100*c.Rate)
	}
	c.Cost = c.Price / useful
	if c.Cores > 0 {
		c.PerCore = c.Cost / float64(c.Cores)
	}
	return c, ""
}

// refused returns why an offer without fatal problems is not ranked.
func (c *Choice) refused(currency string, o Options) string {
	newest := c.SpotUSD
	if currency == prices.USD {
		newest = c.Price
	}
	switch {
	case c.Price <= 0 && c.SpotUSD > 0:
		return "its price is known in USD only: leave --currency out"
	case c.Price <= 0:
		return priceUnknown
	case o.MaxPrice > 0 && newest > o.MaxPrice:
		return fmt.Sprintf("it costs %s USD, above the maximum price of %s: no VM would start", prices.Amount(newest), prices.Amount(o.MaxPrice))
	case c.Quota != nil && c.Cores > 0 && c.Quota.Left() < c.Cores*max(o.VMs, 1):
		return fmt.Sprintf("the Spot quota in %s has %d cores left, and %d are needed: ask for more in the portal under Quotas", c.Region,
			c.Quota.Left(), c.Cores*max(o.VMs, 1))
	}
	for _, p := range c.Placement {
		if p.Score == "RestrictedSkuNotAvailable" {
			return "not available to this subscription in " + c.Region + " (placement score)"
		}
		if p.Score == "Low" {
			c.Remarks = append(c.Remarks, strings.TrimSpace("few or no VMs may be available now "+zone(p.Zone)))
		}
	}
	return ""
}

func zone(name string) string {
	if name == "" {
		return ""
	}
	return "in zone " + name
}

// sizeCores finds the number of cores in a size's name, as "Azure virtual machine sizes
// naming conventions" has it: family, number, for constrained sizes a dash and theirs.
var sizeCores = regexp.MustCompile(`^Standard_[A-Z]+(\d+)(?:-(\d+))?`)

// coresOf returns the cores of a size: as Azure lists them, or by its name.
func coresOf(o prices.Offer) int {
	if o.Machine != nil && o.Machine.Cores > 0 {
		return o.Machine.Cores
	}
	found := sizeCores.FindStringSubmatch(o.Size)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(cmp.Or(found[2], found[1]))
	return n
}
