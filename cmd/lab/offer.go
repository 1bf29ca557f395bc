package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/spotworker/spotworker/internal/overview/priced"
	"github.com/spotworker/spotworker/internal/replay"
)

// offerFlags choose a size in a region from the output of `spotctl prices`.
type offerFlags struct {
	Prices string `env:"-" help:"${about_replay_prices}" placeholder:"FILE"`
	Size   string `env:"-" help:"Size of the VMs, where --prices has several." placeholder:"SIZE"`
	Region string `env:"-" help:"Region of the VMs, where --prices has several." placeholder:"REGION"`
}

// openClass is the upper end of the class 20+ in percent, as `spotctl plan` takes it.
const openClass = 25

// rateOf returns the upper end of a class of eviction rates, per hour. known is false if there is
// none.
func rateOf(class string) (rate float64, known bool) {
	text := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(class), "%"))
	if strings.HasSuffix(text, "+") {
		return openClass / 100.0, true
	}
	_, high, _ := strings.Cut(text, "-")
	percent, err := strconv.ParseFloat(strings.TrimSpace(high), 64)
	return percent / 100, err == nil && percent > 0 && percent <= 100
}

// apply sets the prices and the eviction rate of a fleet to the chosen offer's. Given flags
// stay as they are.
func (f offerFlags) apply(fleet *replay.Fleet, given map[string]bool) error {
	if f.Prices == "" {
		if f.Size != "" || f.Region != "" {
			return fmt.Errorf("--size and --region choose from --prices: give that too")
		}
		return nil
	}
	s, err := priced.Read(f.Prices, f.Size, f.Region)
	if err != nil {
		return fmt.Errorf("--prices %s: %w", f.Prices, err)
	}
	rate, known := rateOf(s.Evicted)
	if !given["evictions"] && fleet.IsDrawn() {
		if !known {
			return fmt.Errorf("--prices %s: it has no eviction rate of %s: give --evictions", f.Prices, s)
		}
		fleet.Rate = rate
	}
	if !given["price"] {
		fleet.Price = cmp.Or(s.Spot, s.SpotUSD)
	}
	if !given["regular-price"] {
		fleet.Dear = s.Regular
	}
	return nil
}
