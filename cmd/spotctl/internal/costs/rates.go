package costs

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs/prices"
	"github.com/spotworker/spotworker/internal/overview/spent"
	"github.com/spotworker/spotworker/internal/text/charset"
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

var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

// read returns the prices that the flags give, none if they give none.
func (f *Rates) read() (rate, error) {
	r := rate{Currency: strings.ToUpper(f.Currency), spot: f.SpotPrice, regVM: f.RegularPrice}
	switch {
	case !(f.SpotPrice >= 0 && f.SpotPrice < 1e6) || !(f.RegularPrice >= 0 && f.RegularPrice < 1e6):
		return r, fmt.Errorf("--spot-price %g and --regular-price %g: give the price of a VM-hour, more than 0", f.SpotPrice, f.RegularPrice)
	case f.Currency != "" && !currencyCode.MatchString(r.Currency):
		return r, fmt.Errorf("--currency %s: give a code of three letters, as in USD", plaintext.Line(f.Currency))
	case f.Prices == "" && (f.Size != "" || f.Region != ""):
		return r, errors.New("--size and --region choose from --prices: give that too, or --spot-price and --regular-price alone")
	case f.Prices != "":
		return f.fromFile(r)
	}
	r.Currency = cmp.Or(r.Currency, prices.USD)
	return r, nil
}

// pricedLine is a line of spotctl prices or spotctl plan, as far as it has prices.
type pricedLine struct {
	Size     string  `json:"size"`
	Region   string  `json:"region"`
	Currency string  `json:"currency"`
	Spot     float64 `json:"spot"`     // of prices
	Regular  float64 `json:"regular"`  // of prices
	SpotUSD  float64 `json:"spot_usd"` // of prices: the newest of the history
	Price    float64 `json:"price"`    // of plan
}

func (l pricedLine) String() string { return plaintext.Line(l.Size + " in " + l.Region) }

// fromFile completes the prices with the prices of a file. The flags must not contradict
// the file.
func (f *Rates) fromFile(r rate) (rate, error) {
	lines, err := readPrices(f.Prices)
	if err != nil {
		return r, fmt.Errorf("--prices: %w", err)
	}
	l, err := f.choose(lines)
	if err == nil {
		err = f.agrees(r, l)
	}
	if err != nil {
		return r, fmt.Errorf("--prices %s: %w", f.Prices, err)
	}
	if l.Currency == prices.USD && disagree(l.Spot, l.SpotUSD) {
		r.remark = fmt.Sprintf("two Spot prices of %s: %s (retail prices), which is used, and %s USD (Resource Graph)", l, prices.Amount(l.Spot),
			prices.Amount(l.SpotUSD))
	}
	if l.spot() == 0 && l.Currency == prices.USD {
		l.Spot = l.SpotUSD
	}
	r.Currency, r.spot, r.regVM = l.Currency, cmp.Or(r.spot, l.spot()), cmp.Or(r.regVM, l.Regular)
	return r, nil
}

// choose returns the only line of the size and region.
func (f *Rates) choose(lines []pricedLine) (pricedLine, error) {
	lines = slices.DeleteFunc(lines, func(l pricedLine) bool {
		return f.Size != "" && !strings.EqualFold(l.Size, prices.SizeName(f.Size)) ||
			f.Region != "" && !strings.EqualFold(l.Region, f.Region)
	})
	if len(lines) == 0 {
		return pricedLine{}, errors.New("it has no price of the given --size and --region")
	}
	l := lines[0]
	for _, other := range lines[1:] {
		switch {
		case other.Size != l.Size || other.Region != l.Region:
			return l, fmt.Errorf("it has prices of %s and of %s: choose with --size and --region", l, other)
		case other.Currency != l.Currency:
			return l, fmt.Errorf("it has prices of %s in %s and in %s: give a file of one currency", l, plaintext.Line(l.Currency),
				plaintext.Line(other.Currency))
		case disagree(other.spot(), l.spot()) || disagree(other.Regular, l.Regular):
			return l, fmt.Errorf("it has two prices of %s: give the newer output alone", l)
		}
		l.Spot, l.Regular, l.Price = max(l.Spot, other.Spot), max(l.Regular, other.Regular), max(l.Price, other.Price)
	}
	return l, nil
}

// agrees returns an error if the flags contradict a line of the file.
func (f *Rates) agrees(r rate, l pricedLine) error {
	switch {
	case r.Currency != "" && r.Currency != l.Currency:
		return fmt.Errorf("its amounts are in %s and not in %s; amounts are not converted: ask spotctl prices with --currency %s",
			plaintext.Line(l.Currency), r.Currency, r.Currency)
	case disagree(r.spot, l.spot()):
		return fmt.Errorf("it has %g for %s, and --spot-price is %g: give one of them", l.spot(), l, r.spot)
	case disagree(r.regVM, l.Regular):
		return fmt.Errorf("it has %g for %s, and --regular-price is %g: give one of them", l.Regular, l, r.regVM)
	}
	return nil
}

func (l pricedLine) spot() float64 { return cmp.Or(l.Spot, l.Price) }

// disagree reports whether two prices that are known differ by more than a percent.
func disagree(a, b float64) bool {
	return a > 0 && b > 0 && max(a, b)-min(a, b) > 0.01*max(a, b)
}

// readPrices reads the lines of a file that have a price and a size.
func readPrices(name string) (lines []pricedLine, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text := bufio.NewScanner(charset.Reader(file))
	text.Buffer(nil, 16<<20)
	for n := 1; text.Scan(); n++ {
		if strings.TrimSpace(text.Text()) == "" {
			continue
		}
		var l pricedLine
		if err := json.Unmarshal(text.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%s line %d is not what spotctl prices -o json prints: %w", name, n, err)
		}
		switch {
		case l.Size == "":
			continue // a gap, or an excluded size
		case l.spot() < 0 || l.Regular < 0 || !currencyCode.MatchString(l.Currency):
			return nil, fmt.Errorf("%s line %d has no currency, or a price that is negative", name, n)
		case l.spot() > 0 || l.Regular > 0 || l.SpotUSD > 0:
			lines = append(lines, l)
		}
	}
	if err := text.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s has no price: give a file that spotctl prices -o json printed", name)
	}
	return lines, nil
}
