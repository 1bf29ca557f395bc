package prices

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/overview/priced"
)

// USD is the currency of price histories and maximum prices.
const USD = "USD"

// Report is all that was found out.
type Report struct {
	Currency string // of Spot and Regular in the offers
	Offers   []Offer
	Gaps     []Gap
}

// Offer is one size in one region.
type Offer struct {
	Size, Region string

	// Spot and Regular are retail prices for an hour, in the report's currency; 0 if
	// not known.
	Spot, Regular float64

	// History has the Spot prices of the last 90 days in USD, oldest first. SpotUSD is
	// the newest of them; 0 if not known.
	History []Point
	SpotUSD float64

	Eviction  Eviction
	Placement []Placement

	Machine *Machine // nil if not known
	Quota   *Quota   // of all Spot VMs of the region; nil if not known

	// Problems are reasons why the offer cannot be used, or doubts about it.
	Problems []Problem
}

// Point is a Spot price from a time on.
type Point struct {
	From time.Time // zero if the service gave none
	USD  float64
}

// Eviction is a class of eviction rates, as Azure publishes them: the chance in percent
// that a VM is evicted within the next hour. The zero value means not known.
type Eviction struct {
	Class     string // such as 5-10, or 20+
	Low, High float64
}

// openClass is how far the class 20+ is taken to reach, in percent. Azure publishes no
// upper end.
const openClass = 25

// ParseEviction reads a class such as 0-5 or 20+. ok is false if it is none.
func ParseEviction(class string) (e Eviction, ok bool) {
	text := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(class), "%"))
	low, high, isRange := strings.Cut(text, "-")
	head, isOpen := strings.CutSuffix(text, "+")
	if isOpen {
		low = head
	}
	from, err := strconv.ParseFloat(strings.TrimSpace(low), 64)
	if err != nil || !isRange && !isOpen || !(from >= 0 && from < 100) {
		return Eviction{}, false
	}
	to := max(from, openClass)
	if !isOpen {
		if to, err = strconv.ParseFloat(strings.TrimSpace(high), 64); err != nil || !(to > from && to <= 100) {
			return Eviction{}, false
		}
	}
	return Eviction{Class: text, Low: from, High: to}, true
}

// Placement is the chance to get the VMs that were asked for, in a zone or, if Zone is
// empty, in the region.
type Placement struct {
	Zone    string
	Score   string // High, Medium, Low, RestrictedSkuNotAvailable or DataNotFoundOrStale
	NoQuota bool
}

// Machine is Azure's description of a size in a region and this subscription.
type Machine struct {
	Cores        int
	MemoryGB     float64
	Architecture string   // x64 or Arm64
	Disks        string   // interfaces of its disks, such as SCSI or SCSI, NVMe
	Local        string   // its local disks: none, a temporary disk or NVMe disks
	Premium      bool     // whether it takes Premium disks
	Spot         bool     // whether it is offered as Spot
	Restricted   string   // why the subscription cannot have it here; empty if it can
	Zones        []string // of the region in which it is offered
}

// Unlike returns why Azure refuses a mix of two sizes; empty if it takes them.
func (m Machine) Unlike(o Machine) string {
	both := func(d string) bool {
		return slices.Contains(strings.Split(strings.ReplaceAll(o.Disks, " ", ""), ","), d)
	}
	switch {
	case m.Architecture != o.Architecture:
		return "another processor"
	case !slices.ContainsFunc(strings.Split(strings.ReplaceAll(m.Disks, " ", ""), ","), both):
		return "another disk interface"
	case m.Local != o.Local:
		return o.Local + " instead of " + m.Local
	case m.Premium != o.Premium:
		return "one takes Premium disks, one does not"
	}
	return ""
}

// Quota is a number of cores.
type Quota struct{ Used, Limit int }

// Left returns how many cores are left.
func (q Quota) Left() int { return max(q.Limit-q.Used, 0) }

// Problem is a remark about an offer.
type Problem struct {
	Fatal bool // whether the offer cannot be used at all
	Text  string
}

// Usable reports whether nothing speaks against deploying the offer.
func (o Offer) Usable() bool {
	return !slices.ContainsFunc(o.Problems, func(p Problem) bool { return p.Fatal })
}

// Gap is something that could not be found out.
type Gap struct {
	Source  string `json:"source"`
	Missing string `json:"missing"` // the data that is not shown
	Reason  string `json:"reason"`  // and what to do about it
}

// String returns the gap as a sentence.
func (g Gap) String() string { return g.Missing + " not shown: " + g.Reason }

// judge adds the problems of the offer, once everything is known.
func (o *Offer) judge(q Query, known sources) {
	add := func(fatal bool, text string) { o.Problems = append(o.Problems, Problem{fatal, text}) }
	if text := o.refusal(known); text != "" {
		add(true, text)
	}
	if q.Currency == USD && priced.Differ(o.Spot, o.SpotUSD) {
		add(false, "two prices: "+Amount(o.Spot)+" (retail prices) and "+Amount(o.SpotUSD)+" USD (Resource Graph)")
	}
	if o.Spot > 0 && o.Regular > 0 && o.Spot >= o.Regular {
		add(false, "Spot costs as much as a regular VM")
	}
}

// refusal returns why the offer cannot be used; empty if nothing is known against it.
func (o *Offer) refusal(known sources) string {
	spot := o.Spot > 0 || o.SpotUSD > 0
	switch m := o.Machine; {
	case m != nil && !m.Spot:
		return "not offered as Spot in " + o.Region
	case m != nil && m.Restricted != "":
		return "not available to this subscription in " + o.Region + ": " + m.Restricted
	case m == nil && known.machines[o.Region]:
		return "no size of this name in " + o.Region
	case !known.retail || spot:
		return ""
	case o.Regular == 0:
		return "no price in " + o.Region + ": the size does not exist, is not offered there, or is spelt differently (as in " +
			"Standard_D2as_v5)"
	}
	return "no Spot price in " + o.Region + ": not offered as Spot there"
}

// Amount writes a price with as many digits as a maximum price may have.
func Amount(price float64) string { return strconv.FormatFloat(price, 'f', 5, 64) }

// sortHistory puts prices in the order of time. Prices without a time keep their order
// reversed, since the service lists the newest first.
func sortHistory(points []Point) {
	slices.Reverse(points)
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.From.Unix(), b.From.Unix()) })
}
