package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spotworker/spotworker/internal/replay"
	"github.com/spotworker/spotworker/internal/text/charset"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// offerFlags choose a size in a region from the output of `spotctl prices`.
type offerFlags struct {
	Prices string `env:"-" help:"${about_replay_prices}" placeholder:"FILE"`
	Size   string `env:"-" help:"Size of the VMs, where --prices has several." placeholder:"SIZE"`
	Region string `env:"-" help:"Region of the VMs, where --prices has several." placeholder:"REGION"`
}

// offer is a line of `spotctl prices -o json`.
type offer struct {
	Size    string  `json:"size"`
	Region  string  `json:"region"`
	Spot    float64 `json:"spot"`
	SpotUSD float64 `json:"spot_usd"`
	Regular float64 `json:"regular"`
	Evicted string  `json:"evicted_percent_an_hour"`
}

func (o offer) String() string { return plaintext.Line(o.Size + " in " + o.Region) }

// openClass is the upper end of the class 20+ in percent, as `spotctl plan` takes it.
const openClass = 25

// rate returns the upper end of the class of eviction rates, per hour. known is false if the
// offer has no class.
func (o offer) rate() (rate float64, known bool) {
	text := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(o.Evicted), "%"))
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
	o, err := f.choose()
	if err != nil {
		return fmt.Errorf("--prices %s: %w", f.Prices, err)
	}
	rate, known := o.rate()
	if !given["evictions"] && fleet.IsDrawn() {
		if !known {
			return fmt.Errorf("--prices %s: it has no eviction rate of %s: give --evictions", f.Prices, o)
		}
		fleet.Rate = rate
	}
	if !given["price"] {
		if fleet.Price = o.Spot; fleet.Price == 0 {
			fleet.Price = o.SpotUSD
		}
	}
	if !given["regular-price"] {
		fleet.Dear = o.Regular
	}
	return nil
}

// choose returns the only offer of the size and region.
func (f offerFlags) choose() (chosen offer, err error) {
	file, err := os.Open(f.Prices)
	if err != nil {
		return offer{}, err
	}
	defer file.Close()
	lines := bufio.NewScanner(charset.Reader(file))
	lines.Buffer(nil, 16<<20)
	bare := func(size string) string { return strings.TrimPrefix(strings.ToLower(size), "standard_") }
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var o offer
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return offer{}, fmt.Errorf("line %d is not what spotctl prices -o json prints: %w", n, err)
		}
		switch {
		case o.Size == "", f.Size != "" && bare(o.Size) != bare(f.Size), f.Region != "" && !strings.EqualFold(o.Region, f.Region):
		case chosen.Size != "":
			return offer{}, fmt.Errorf("it has %s and %s: choose with --size and --region", chosen, o)
		default:
			chosen = o
		}
	}
	if lines.Err() == nil && chosen.Size == "" {
		return offer{}, fmt.Errorf("it has no line of the given --size and --region")
	}
	return chosen, lines.Err()
}
