package costs

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs/prices"
	"github.com/spotworker/spotworker/internal/overview/table"
)

// Prices is the command prices.
type Prices struct {
	Sizes []string `arg:"" name:"size" help:"VM sizes, such as Standard_D2as_v5 or d2as_v5."`
	Zones bool     `help:"Ask for the placement scores of each zone." env:"-"`
	Source
}

// Help is shown by prices --help.
func (*Prices) Help() string {
	return `Shows what VMs of some sizes cost now in some regions, as Spot and as regular VMs, what
they cost in the last 90 days, how often they are evicted, and how likely it is to get some now.

Retail prices need no sign-in. Price history and eviction rates need one with the role Reader on a
subscription; sizes and quota need Reader on --subscription, placement scores the Compute
Recommendations Role. What cannot be asked is left out, and said.

With -o json each size in each region is a line, and each thing that could not be found out a line
with "gap". It ends with 1 if no price was found at all.`
}

// Run asks for the prices and prints them.
func (c *Prices) Run(ctx context.Context, s Session) error {
	_, report, err := c.gather(ctx, s, c.Sizes, c.Zones)
	if err != nil {
		return err
	}
	if err := c.print(s, report); err != nil {
		return err
	}
	if err := gaps(s, report.Gaps); err != nil {
		return err
	}
	for _, o := range report.Offers {
		if o.Spot > 0 || o.SpotUSD > 0 || o.Regular > 0 {
			return nil
		}
	}
	return errors.New("no price was found; the reasons are above")
}

func (c *Prices) print(s Session, report prices.Report) error {
	if s.JSON {
		for _, o := range report.Offers {
			if err := s.Line(offerLineOf(o, report.Currency)); err != nil {
				return err
			}
		}
		return nil
	}
	t := table.New(
		table.Column{Name: "SIZE"}, table.Column{Name: "REGION"},
		table.Column{Name: "SPOT " + report.Currency + "/H", Right: true}, table.Column{Name: "REGULAR", Right: true, Drop: 2},
		table.Column{Name: "SAVED", Right: true, Drop: 1},
		table.Column{Name: "90 DAYS, USD", Drop: 4}, table.Column{Name: "EVICTED/H", Right: true},
		table.Column{Name: "PLACEMENT", Drop: 3}, table.Column{Name: "CORES", Right: true, Drop: 6},
		table.Column{Name: "QUOTA LEFT", Right: true, Drop: 5},
		table.Column{Name: "REMARKS", Least: 20},
	)
	for _, o := range report.Offers {
		t.Add(o.Size, o.Region, amount(o.Spot), amount(o.Regular), saved(o), span(o.History), eviction(o.Eviction), placement(o.Placement),
			cores(o.Machine), left(o.Quota), remarks(o))
	}
	return s.Lines(t.Lines(s.Width))
}

// amount writes a price; empty if it is not known.
func amount(price float64) string {
	if price <= 0 {
		return ""
	}
	return prices.Amount(price)
}

func saved(o prices.Offer) string {
	if o.Spot <= 0 || o.Regular <= 0 {
		return ""
	}
	return percent(1 - o.Spot/o.Regular)
}

// span writes the lowest and the highest price of a history.
func span(points []prices.Point) string {
	if len(points) == 0 {
		return ""
	}
	low, high := points[0].USD, points[0].USD
	for _, p := range points {
		low, high = min(low, p.USD), max(high, p.USD)
	}
	if low == high {
		return prices.Amount(low)
	}
	return prices.Amount(low) + "–" + prices.Amount(high)
}

func eviction(e prices.Eviction) string {
	if e.Class == "" {
		return ""
	}
	return e.Class + " %"
}

// placement writes the scores, with their zones if there are any.
func placement(scores []prices.Placement) string {
	var parts []string
	for _, p := range scores {
		text := score(p.Score)
		if p.Zone != "" {
			text = p.Zone + ": " + text
		}
		if p.NoQuota {
			text += " (no quota)"
		}
		parts = append(parts, text)
	}
	return sentence(parts)
}

// score writes a placement score in words.
func score(said string) string {
	switch said {
	case "RestrictedSkuNotAvailable":
		return "not for this subscription"
	case "DataNotFoundOrStale":
		return "no data"
	}
	return said
}

func cores(m *prices.Machine) string {
	if m == nil || m.Cores == 0 {
		return ""
	}
	return strconv.Itoa(m.Cores)
}

func left(q *prices.Quota) string {
	if q == nil {
		return ""
	}
	return strconv.Itoa(q.Left())
}

func remarks(o prices.Offer) string {
	var parts []string
	for _, p := range o.Problems {
		parts = append(parts, p.Text)
	}
	return sentence(parts)
}

// offerLine is an offer, in the JSON output.
type offerLine struct {
	Size        string          `json:"size"`
	Region      string          `json:"region"`
	Currency    string          `json:"currency"`
	Spot        float64         `json:"spot,omitempty"`
	Regular     float64         `json:"regular,omitempty"`
	SpotUSD     float64         `json:"spot_usd,omitempty"` // the newest of the history
	History     []pointLine     `json:"history,omitempty"`
	EvictedHour string          `json:"evicted_percent_an_hour,omitempty"`
	Placement   []placementLine `json:"placement,omitempty"`
	Cores       int             `json:"cores,omitempty"`
	MemoryGB    float64         `json:"memory_gb,omitempty"`
	Zones       []string        `json:"zones,omitempty"`
	QuotaLeft   *int            `json:"quota_left,omitempty"`
	Usable      bool            `json:"usable"`
	Remarks     []string        `json:"remarks,omitempty"`
}

type pointLine struct {
	From time.Time `json:"from,omitzero"`
	USD  float64   `json:"usd"`
}

type placementLine struct {
	Zone    string `json:"zone,omitempty"`
	Score   string `json:"score"`
	NoQuota bool   `json:"no_quota,omitempty"`
}

func offerLineOf(o prices.Offer, currency string) offerLine {
	l := offerLine{
		Size: o.Size, Region: o.Region, Currency: currency, Spot: o.Spot, Regular: o.Regular, SpotUSD: o.SpotUSD,
		EvictedHour: o.Eviction.Class, Usable: o.Usable(),
	}
	for _, p := range o.History {
		l.History = append(l.History, pointLine(p))
	}
	for _, p := range o.Placement {
		l.Placement = append(l.Placement, placementLine(p))
	}
	for _, p := range o.Problems {
		l.Remarks = append(l.Remarks, p.Text)
	}
	if m := o.Machine; m != nil {
		l.Cores, l.MemoryGB, l.Zones = m.Cores, m.MemoryGB, m.Zones
	}
	if q := o.Quota; q != nil {
		free := q.Left()
		l.QuotaLeft = &free
	}
	return l
}
