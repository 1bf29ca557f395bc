package web

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"

	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/overview/spent"
)

// costs is the body of the page with the costs.
type costs struct {
	Total costRow
	Rows  []costRow // the latest day first
	Notes []string

	Currency string // empty without money
}

// costRow is what the jobs of a kind cost on a day.
type costRow struct {
	Day, Kind, Jobs, Time, Useful, Redone, Overhead string
	Evictions, Exits                                int
	Bar                                             template.HTML
	Address                                         string
	spent.Money
}

// costRowOf returns the row of times of slots, in seconds.
func costRowOf(useful, redone, overhead float64) costRow {
	sum := useful + redone + overhead
	r := costRow{Time: slotTime(sum), Useful: "–", Redone: "–", Overhead: "–"}
	if sum > 0 {
		r.Useful, r.Redone, r.Overhead = overview.Share(useful/sum), overview.Share(redone/sum), overview.Share(overhead/sum)
	}
	r.Bar = stack(fmt.Sprintf("useful %s, redone %s, overhead %s", r.Useful, r.Redone, r.Overhead),
		piece{"done", useful}, piece{"bad", redone}, piece{"off", overhead})
	return r
}

func (s *Server) costsOf(v view) (c costs) {
	groups, all := v.costs.Sorted()
	slots := cmp.Or(float64(s.config.Slots), spent.SlotsOf(v.Workers).Mean)
	price := func(spent.Sum, float64) spent.Money { return spent.Money{} }
	switch {
	case s.config.Price == nil:
	case slots == 0:
		c.Notes = append(c.Notes, "Money is left out: no heartbeat of a live worker says how many jobs a VM does at a time; --slots says it.")
	default:
		price, c.Currency = s.config.Price, s.config.Currency
		c.Notes = append(c.Notes, fmt.Sprintf("A VM-hour is %.3g slot-hours; boots, idle slots and idle VMs are in no job's ledger.", slots))
	}
	slices.Reverse(groups)
	c.Total = costRowOf(all.Useful, all.Redone, all.Overhead)
	c.Total.Money = price(all, slots)
	c.Total.Jobs, c.Total.Evictions, c.Total.Exits = overview.Number(all.Jobs), all.Evictions, all.UncleanExits
	for _, g := range groups {
		sum := v.costs.Rows[g]
		r := costRowOf(sum.Useful, sum.Redone, sum.Overhead)
		r.Day, r.Kind, r.Jobs, r.Evictions, r.Exits = g.Day, line(g.Kind), overview.Number(sum.Jobs), sum.Evictions, sum.UncleanExits
		r.Address, r.Money = addressOfJobs(g.Kind), price(*sum, slots)
		c.Rows = append(c.Rows, r)
	}
	if v.costs.Unreadable > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%s records are of a newer version and not in the sums.", overview.Number(v.costs.Unreadable)))
	}
	return c
}
