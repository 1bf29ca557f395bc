package costs

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs/prices"
	"github.com/spotworker/spotworker/internal/overview/priced"
	"github.com/spotworker/spotworker/internal/overview/spent"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// Rates are the flags for the price of a VM-hour.
type Rates struct {
	SpotPrice    float64 `help:"Price of an hour of a Spot VM." placeholder:"PRICE" env:"-"`
	RegularPrice float64 `help:"Price of an hour of a regular VM of the same size." placeholder:"PRICE" env:"-"`
	Currency     string  `help:"${about_rates_currency}" placeholder:"CODE" env:"-"`
	Prices       string  `help:"${about_rates_prices}" placeholder:"FILE" env:"-"`
	Size         string  `help:"Size of the VMs, where --prices has several." placeholder:"SIZE" env:"-"`
	Region       string  `help:"Region of the VMs, where --prices has several." placeholder:"REGION" env:"-"`
}

// rate is the price of a VM-hour. A price of 0 is not known.
type rate struct {
	Currency    string
	spot, regVM float64
	slots       float64 // slot-hours of a VM-hour
	remark      string  // about the prices; empty for none
}

func (r rate) isSet() bool { return r.spot > 0 || r.regVM > 0 }

// hours converts seconds of slots into hours of VMs.
func (r rate) hours(slotSeconds float64) float64 { return slotSeconds / 3600 / r.slots }

// cost is the cost of a row's jobs on Spot VMs; nil if that is not known.
func (r rate) cost(sum spent.Sum) *float64 {
	if r.spot <= 0 {
		return nil
	}
	return new(r.hours(sum.Total()) * r.spot)
}

// regular is the cost that the jobs would have had on regular VMs, where no work is lost and
// each job needs one delivery; nil if that is not known.
func (r rate) regular(sum spent.Sum) *float64 {
	if r.regVM <= 0 {
		return nil
	}
	return new(r.hours(sum.Useful+sum.Once) * r.regVM)
}

// saved is the share of the regular cost that Spot VMs saved. It may be negative.
func (r rate) saved(sum spent.Sum) string {
	cost, regular := r.cost(sum), r.regular(sum)
	if cost == nil || regular == nil || *regular == 0 || sum.Total() < leastForSaved.Seconds() {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*(1 - *cost / *regular))
}

// leastForSaved is the time in slots from which on a saved share is shown: of jobs of a few
// milliseconds nearly all time is overhead, which VMs of regular priority have too.
const leastForSaved = time.Minute

// Priced returns the currency, and a function that prices the time of jobs on VMs with so many
// slots. The function is nil if the flags give no prices.
func (f *Rates) Priced() (currency string, price func(sum spent.Sum, slots float64) spent.Money, err error) {
	r, err := f.read()
	if err != nil || !r.isSet() {
		return "", nil, err
	}
	return r.Currency, func(sum spent.Sum, slots float64) spent.Money {
		r := r
		r.slots = slots
		return spent.Money{Cost: money(r.cost(sum)), Regular: money(r.regular(sum)), Saved: r.saved(sum)}
	}, nil
}

// money writes an amount; empty if it is not known.
func money(amount *float64) string {
	switch {
	case amount == nil:
		return ""
	case *amount != 0 && *amount < 1:
		return fmt.Sprintf("%.4f", *amount)
	}
	return fmt.Sprintf("%.2f", *amount)
}

// read returns the prices that the flags give, none if they give none.
func (f *Rates) read() (rate, error) {
	r := rate{Currency: strings.ToUpper(f.Currency), spot: f.SpotPrice, regVM: f.RegularPrice}
	switch {
	case !(f.SpotPrice >= 0 && f.SpotPrice < 1e6) || !(f.RegularPrice >= 0 && f.RegularPrice < 1e6):
		return r, fmt.Errorf("--spot-price %g and --regular-price %g: give the price of a VM-hour, more than 0", f.SpotPrice, f.RegularPrice)
	case f.Currency != "" && !priced.Currency.MatchString(r.Currency):
		return r, fmt.Errorf("--currency %s: give a code of three letters, as in USD", plaintext.Line(f.Currency))
	case f.Prices == "" && (f.Size != "" || f.Region != ""):
		return r, errors.New("--size and --region choose from --prices: give that too, or --spot-price and --regular-price alone")
	case f.Prices != "":
		return f.fromFile(r)
	}
	r.Currency = cmp.Or(r.Currency, prices.USD)
	return r, nil
}

// fromFile completes the prices with the prices of a file.
func (f *Rates) fromFile(r rate) (rate, error) {
	s, err := priced.Read(f.Prices, f.Size, f.Region)
	switch {
	case err != nil:
		return r, fmt.Errorf("--prices %s: %w", f.Prices, err)
	case r.Currency != "" && r.Currency != s.Currency:
		return r, fmt.Errorf("--prices %s: its amounts are in %s and not in %s; amounts are not converted: ask spotctl prices with --currency %s",
			f.Prices, s.Currency, r.Currency, r.Currency)
	}
	if s.Currency == prices.USD {
		if priced.Differ(s.Spot, s.SpotUSD) {
			r.remark = fmt.Sprintf("two Spot prices of %s: %s (retail prices), which is used, and %s USD (Resource Graph)", s,
				prices.Amount(s.Spot), prices.Amount(s.SpotUSD))
		}
		s.Spot = cmp.Or(s.Spot, s.SpotUSD)
	}
	r.Currency, r.spot, r.regVM = s.Currency, cmp.Or(r.spot, s.Spot), cmp.Or(r.regVM, s.Regular)
	return r, nil
}
