package costs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs/plan"
	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs/prices"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview/table"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// Plan is the command plan.
type Plan struct {
	Sizes    []string      `arg:"" optional:"" name:"size" help:"${about_plan_sizes}"`
	MaxPrice float64       `help:"Maximum price of a VM in USD an hour. -1 is none." default:"-1" env:"-"`
	Boot     time.Duration `help:"Time from when a VM is paid for until its worker takes work." default:"3m" env:"-"`
	SaveTime time.Duration `help:"Time that saving a job's state takes." default:"35ms" env:"-"`
	By       string        `help:"What sizes are ranked by: the cost of a useful hour of a ${enum}." enum:"core,vm" default:"core" env:"-"`
	Watch    bool          `help:"${about_plan_watch}" env:"-"`
	Source
}

// Help is shown by plan --help.
func (*Plan) Help() string {
	return `Ranks sizes and regions by what a useful hour is expected to cost: the Spot price, divided
by the share of the time that evictions, boots and saves leave. It uses the upper end of the
eviction rate that Azure publishes, and the formula by which workers choose when to save. --count is
how many VMs the quota must have room for.

--max-price excludes what costs more now, and shows how often that price would have evicted in the
last 90 days.

On a schedule: spotctl plan --watch D2as_v5 --max-price 0.03 --region westeurope --subscription ID ends
with 2 when a size is no longer available, the price comes within 10 % of the maximum or above it, or
a size is at least 20 % cheaper in a further region. The sizes and the first region are what is deployed.

With -o json each choice, each excluded offer ("excluded"), each finding of --watch ("finding") and each gap ("gap") is a line.`
}

// Run asks for prices, ranks them, and prints the ranking or the changes to make.
func (c *Plan) Run(ctx context.Context, s Session) error {
	deployed, err := c.deployed()
	if err != nil {
		return &cli.ConfigError{Err: err}
	}
	query, report, err := c.gather(ctx, s, c.Sizes, false)
	if err != nil {
		return err
	}
	o := plan.Options{Work: plan.Work{Boot: c.Boot, Save: c.SaveTime}, MaxPrice: c.MaxPrice, VMs: query.Count, PerVM: c.By == "vm"}
	if c.Watch {
		o.MaxPrice = deployed.MaxPrice
		o.VMs = 0 // the deployment has taken its part of the quota
		return c.watch(s, deployed, report.Gaps, plan.Rank(report, o, time.Now()))
	}
	ranking := plan.Rank(report, o, time.Now())
	if err := errors.Join(c.print(s, ranking), gaps(s, report.Gaps)); err != nil {
		return err
	}
	if len(ranking.Choices) == 0 {
		return errors.New("nothing can be chosen; the reasons are above")
	}
	return nil
}

// check checks the numbers among the flags.
func (c *Plan) check() error {
	switch {
	case c.Boot < 0 || c.SaveTime <= 0:
		return fmt.Errorf("--boot %s and --save-time %s: give times that are not negative, and a save that takes some", c.Boot, c.SaveTime)
	case !(c.MaxPrice > 0) && c.MaxPrice != -1:
		return fmt.Errorf("--max-price %g: give USD an hour, or -1 for none", c.MaxPrice)
	}
	return nil
}

// deployed checks the flags and returns the deployment; nothing without --watch.
func (c *Plan) deployed() (plan.Deployed, error) {
	if err := c.check(); err != nil || !c.Watch {
		return plan.Deployed{}, err
	}
	// The first region is where it is deployed; the others are alternatives.
	q, err := prices.Query{Sizes: c.Sizes, Regions: c.Region}.Normalize()
	if err != nil {
		return plan.Deployed{}, err
	}
	return plan.Deployed{Sizes: q.Sizes, Region: q.Regions[0], MaxPrice: c.MaxPrice}, nil
}

func (c *Plan) watch(s Session, deployed plan.Deployed, missing []prices.Gap, r plan.Ranking) error {
	if err := gaps(s, missing); err != nil {
		return err
	}
	found, unknown := plan.Compare(deployed, r)
	for _, f := range found {
		if s.JSON {
			if err := s.Line(findingLine{f}); err != nil {
				return err
			}
		} else if err := s.Lines([]string{plaintext.Line(join(f.Size, f.Text))}); err != nil {
			return err
		}
	}
	switch {
	case len(found) > 0:
		return &cli.ChangeError{Err: errors.New("what is deployed should be changed; the reasons are above")}
	case len(unknown) > 0:
		return fmt.Errorf("the Spot price of %s could not be found out, so it cannot be compared; the reasons are above",
			plaintext.Line(sentence(unknown)))
	}
	if !s.JSON {
		s.Note("nothing should be changed")
	}
	return nil
}

func join(size, text string) string {
	if size == "" {
		return text
	}
	return size + " " + text
}

type findingLine struct {
	Finding plan.Finding `json:"finding"`
}

func (c *Plan) print(s Session, r plan.Ranking) error {
	if s.JSON {
		for _, choice := range r.Choices {
			if err := s.Line(choiceLineOf(choice, r.Currency)); err != nil {
				return err
			}
		}
		for _, e := range r.Excluded {
			if err := s.Line(excludedLine{excludedOffer{e.Size, e.Region, e.Reason}}); err != nil {
				return err
			}
		}
		return nil
	}
	columns := []table.Column{
		{Name: "SIZE"}, {Name: "REGION"},
		{Name: r.Currency + "/USEFUL H", Right: true}, {Name: "PER CORE", Right: true},
		{Name: "PRICE", Right: true, Drop: 2},
		{Name: "USEFUL", Right: true}, {Name: "EVICTED/H", Right: true, Drop: 1},
		{Name: "SAVE EVERY", Right: true, Drop: 4},
		{Name: "90 DAYS' HIGHEST, USD", Right: true, Drop: 5}, {Name: "REMARKS", Least: 20, Drop: 3},
	}
	t := table.New(columns...)
	for _, choice := range r.Choices {
		t.Add(choice.Size, choice.Region, amount(choice.Cost), amount(choice.PerCore), amount(choice.Price),
			fmt.Sprintf("%.1f %%", 100*choice.Model.Useful()), fmt.Sprintf("%.1f %%", 100*choice.Rate),
			choice.Model.Interval.Round(time.Second).String(), amount(choice.Past.Highest), sentence(choice.Remarks))
	}
	if t.Len() > 0 {
		if err := s.Lines(t.Lines(s.Width)); err != nil {
			return err
		}
	}
	for _, e := range r.Excluded {
		if err := s.Lines([]string{plaintext.Line(fmt.Sprintf("excluded: %s in %s: %s", e.Size, e.Region, e.Reason))}); err != nil {
			return err
		}
	}
	return nil
}

// choiceLine is a choice, in the JSON output.
type choiceLine struct {
	Size      string   `json:"size"`
	Region    string   `json:"region"`
	Currency  string   `json:"currency"`
	Cost      float64  `json:"useful_hour"`
	PerCore   float64  `json:"useful_core_hour,omitempty"`
	Price     float64  `json:"price"`
	Useful    float64  `json:"useful_share"`
	Saving    float64  `json:"saving_share"`
	Redone    float64  `json:"redone_share"`
	Idle      float64  `json:"idle_share"`
	Rate      float64  `json:"evictions_an_hour"`
	Interval  float64  `json:"checkpoint_interval_seconds"`
	Highest   float64  `json:"highest_usd,omitempty"`
	Evictions int      `json:"evictions_by_price"`
	Available float64  `json:"available_share"` // of the history, at the maximum price
	Remarks   []string `json:"remarks,omitempty"`
}

func choiceLineOf(c plan.Choice, currency string) choiceLine {
	return choiceLine{
		Size: c.Size, Region: c.Region, Currency: currency, Cost: c.Cost, PerCore: c.PerCore, Price: c.Price,
		Useful: c.Model.Useful(), Saving: c.Model.Saving, Redone: c.Model.Redone, Idle: c.Model.Idle,
		Rate: c.Rate, Interval: c.Model.Interval.Seconds(),
		Highest: c.Past.Highest, Evictions: c.Past.Evictions, Available: c.Past.Available(), Remarks: c.Remarks,
	}
}

type excludedLine struct {
	Excluded excludedOffer `json:"excluded"`
}

type excludedOffer struct {
	Size   string `json:"size"`
	Region string `json:"region"`
	Reason string `json:"reason"`
}
