package costs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview/spent"
	"github.com/spotworker/spotworker/internal/overview/table"
	"github.com/spotworker/spotworker/internal/text/durations"
)

// Cost is the command cost.
type Cost struct {
	Kind    string        `help:"Only jobs of this kind." placeholder:"KIND" env:"-"`
	Since   string        `help:"${about_cost_since}" placeholder:"TIME" env:"-"`
	By      []string      `help:"What a row is of: ${enum}, or both." enum:"day,kind" default:"day,kind" env:"-"`
	Slots   int           `help:"${about_cost_slots}" placeholder:"N" env:"-"`
	Timeout time.Duration `help:"Longest time to read the records; 0s is no limit." default:"10m" env:"-"`
	Rates
}

// Help is shown by cost --help.
func (*Cost) Help() string {
	return `Sums what jobs have cost, from the ledgers in their records, by kind and by day (UTC) of
the record's last write: for a job that has ended, the day it ended on.

Time is that of workers' slots. useful is that of handlers whose progress is in the state or the
result, redone that of handlers whose progress was lost, overhead all other: waiting, restoring, the
last save, the commit.

With prices it is money. An hour of a VM is --slots hours of slots, as if all of them were always
busy: boots, idle slots and idle VMs are on the bill and in no job's ledger. Beside it stands what
regular VMs of the same size would have cost: the useful time, and the overhead of one delivery for
each job.

Prices are those of a VM-hour: --spot-price and --regular-price, or --prices with what spotctl
prices or plan printed with -o json.

It costs one call for each 5,000 records of the deployment, whatever is selected. Jobs that
left no record, or whose record was removed, are not in it.`
}

// Deployment is where the records are.
type Deployment interface {
	List(ctx context.Context, f client.Filter) iter.Seq2[client.Job, error]
	Workers(ctx context.Context) ([]client.Worker, error)
}

// Run sums the ledgers and prints them.
func (c *Cost) Run(ctx context.Context, s Session, open func() (Deployment, error)) error {
	since, err := moment(c.Since, time.Now())
	if err != nil {
		return &cli.ConfigError{Err: err}
	}
	if c.Slots < 0 {
		return &cli.ConfigError{Err: fmt.Errorf("--slots is %d; it must be positive", c.Slots)}
	}
	rate, err := c.read()
	if err != nil {
		return &cli.ConfigError{Err: err}
	}
	deployment, err := open()
	if err != nil {
		return err
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	var unpriced error
	if rate.isSet() {
		if rate.slots, err = c.slots(ctx, s, deployment); errors.As(err, new(*cli.ConfigError)) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			unpriced = fmt.Errorf("what it costs in money is left out: %w", err)
			rate.spot, rate.regVM = 0, 0
		}
	}
	sums, err := c.sum(ctx, deployment, since)
	if err != nil {
		return err
	}
	return cmp.Or(sums.print(s, rate, c.By), unpriced)
}

// moment reads --since. No text is no limit.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	if ago, err := durations.Parse(text); err == nil && ago > 0 {
		return now.Add(-ago), nil
	}
	return time.Time{}, fmt.Errorf("--since %s: give a date as in 2026-11-01, a time as in 2026-11-01T08:00:00Z, or how long ago, as "+
		"in 36h or 7d", strconv.Quote(text))
}

// slots returns how many jobs a VM does at a time.
func (c *Cost) slots(ctx context.Context, s Session, deployment Deployment) (float64, error) {
	if c.Slots > 0 {
		return float64(c.Slots), nil
	}
	workers, err := deployment.Workers(ctx)
	if err != nil {
		return 0, fmt.Errorf("read how many slots a VM has: %w (--slots says it)", err)
	}
	vms := spent.SlotsOf(workers)
	if vms.VMs == 0 {
		return 0, &cli.ConfigError{Err: errors.New("no heartbeat of a live worker says how many jobs a VM does at a time: give --slots, the " +
			"workers' --concurrency times the workers of a VM")}
	}
	if vms.Least != vms.Most {
		s.Note("VMs have %d to %d slots by the heartbeats of %d; the mean of %.3g is used: --slots says otherwise", vms.Least, vms.Most, vms.VMs,
			vms.Mean)
	}
	return vms.Mean, nil
}

// sums are the sums of the records that were read.
type sums struct {
	*spent.Sums
}

// sum reads the records.
func (c *Cost) sum(ctx context.Context, deployment Deployment, since time.Time) (*sums, error) {
	s := &sums{Sums: spent.New(slices.Contains(c.By, "day"), slices.Contains(c.By, "kind"))}
	for j, err := range deployment.List(ctx, client.Filter{Kind: c.Kind}) {
		if err != nil {
			return s, err // the last
		}
		if !j.UpdatedAt.Before(since) {
			s.Add(j)
		}
	}
	return s, nil
}

func (s *sums) print(session Session, rate rate, by []string) error {
	groups, all := s.Sorted()
	if session.JSON {
		for _, g := range groups {
			if err := session.Line(costLineOf(g, *s.Rows[g], rate)); err != nil {
				return err
			}
		}
		return session.Line(struct {
			Total      costLine `json:"total"`
			Unreadable int      `json:"unreadable_records,omitempty"`
		}{costLineOf(spent.Group{}, all, rate), s.Unreadable})
	}
	if len(groups) == 0 {
		session.None("no job with a record is selected")
	} else if err := session.Lines(s.table(groups, all, rate, by).Lines(session.Width)); err != nil {
		return err
	}
	for _, remark := range s.remarks(rate) {
		session.Note("%s", remark)
	}
	return nil
}

func (s *sums) table(groups []spent.Group, all spent.Sum, rate rate, by []string) *table.Table {
	var columns []table.Column
	for _, name := range []string{"day", "kind"} {
		if slices.Contains(by, name) {
			columns = append(columns, table.Column{Name: strings.ToUpper(name)})
		}
	}
	columns = append(columns,
		table.Column{Name: "JOBS", Right: true}, table.Column{Name: "SLOT H", Right: true},
		table.Column{Name: "USEFUL", Right: true}, table.Column{Name: "REDONE", Right: true, Drop: 2},
		table.Column{Name: "OVERHEAD", Right: true, Drop: 3},
		table.Column{Name: "EVICTED", Right: true, Drop: 4}, table.Column{Name: "DIED", Right: true, Drop: 5})
	if rate.isSet() {
		columns = append(columns, table.Column{Name: "COST " + rate.Currency, Right: true}, table.Column{Name: "REGULAR", Right: true},
			table.Column{Name: "SAVED", Right: true})
	}
	t := table.New(columns...)
	add := func(g spent.Group, r spent.Sum) {
		share := func(part float64) string {
			if r.Total() == 0 {
				return ""
			}
			return fmt.Sprintf("%.1f %%", 100*part/r.Total())
		}
		var cells []string
		if slices.Contains(by, "day") {
			cells = append(cells, g.Day)
		}
		if slices.Contains(by, "kind") {
			cells = append(cells, g.Kind)
		}
		t.Add(append(cells, strconv.Itoa(r.Jobs), fmt.Sprintf("%.2f", r.Total()/3600), share(r.Useful), share(r.Redone), share(r.Overhead),
			strconv.Itoa(r.Evictions), strconv.Itoa(r.UncleanExits), money(rate.cost(r)), money(rate.regular(r)), rate.saved(r))...)
	}
	for _, g := range groups {
		add(g, *s.Rows[g])
	}
	if len(groups) > 1 {
		add(spent.Group{Day: "all", Kind: "all"}, all)
	}
	return t
}

// remarks are facts that the table cannot show.
func (s *sums) remarks(rate rate) (remarks []string) {
	if s.Unreadable > 0 {
		remarks = append(remarks, fmt.Sprintf("not readable by this version, and not in the sums: %d records", s.Unreadable))
	}
	if rate.remark != "" {
		remarks = append(remarks, rate.remark)
	}
	if rate.isSet() {
		remarks = append(remarks, fmt.Sprintf("a VM-hour is %.3g slot-hours; boots, idle slots and idle VMs are in no job's ledger", rate.slots))
	}
	return remarks
}

// costLine is a row, in the JSON output.
type costLine struct {
	Day          string   `json:"day,omitempty"`
	Kind         string   `json:"kind,omitempty"`
	Jobs         int      `json:"jobs"`
	Useful       float64  `json:"useful_seconds"`
	Redone       float64  `json:"redone_seconds"`
	Overhead     float64  `json:"overhead_seconds"`
	Evictions    int      `json:"evictions"`
	UncleanExits int      `json:"unclean_exits"`
	Slots        float64  `json:"slots,omitempty"`
	VMHours      float64  `json:"vm_hours,omitempty"`
	Currency     string   `json:"currency,omitempty"`
	Cost         *float64 `json:"cost,omitempty"`
	Regular      *float64 `json:"regular_cost,omitempty"`
}

func costLineOf(g spent.Group, r spent.Sum, rate rate) costLine {
	l := costLine{
		Day: g.Day, Kind: g.Kind, Jobs: r.Jobs, Useful: r.Useful, Redone: r.Redone, Overhead: r.Overhead,
		Evictions: r.Evictions, UncleanExits: r.UncleanExits,
		Cost: rate.cost(r), Regular: rate.regular(r),
	}
	if rate.isSet() {
		l.Currency, l.Slots, l.VMHours = rate.Currency, rate.slots, rate.hours(r.Total())
	}
	return l
}
