// Package priced reads the prices of VMs from a file that spotctl prices or spotctl plan printed.
package priced

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spotworker/spotworker/internal/text/charset"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// Size is a size of VMs in a region, as far as a file has it. A price of 0 is not known.
type Size struct {
	Size     string  `json:"size"`
	Region   string  `json:"region"`
	Currency string  `json:"currency"`
	Spot     float64 `json:"spot"`
	Regular  float64 `json:"regular"`
	SpotUSD  float64 `json:"spot_usd"` // of prices: the newest of the history
	Price    float64 `json:"price"`    // of plan
	Evicted  string  `json:"evicted_percent_an_hour"`
}

// String names the size for people.
func (s Size) String() string { return plaintext.Line(s.Size + " in " + s.Region) }

// Currency matches codes of currencies.
var Currency = regexp.MustCompile(`^[A-Z]{3}$`)

// Differ reports whether two prices that are known differ by more than a percent.
func Differ(a, b float64) bool { return a > 0 && b > 0 && max(a, b)-min(a, b) > 0.01*max(a, b) }

// Read returns the only size of that name and region in a file; an empty one is any.
func Read(file, size, region string) (chosen Size, err error) {
	in, err := os.Open(file)
	if err != nil {
		return chosen, err
	}
	defer in.Close()
	lines, priced := bufio.NewScanner(charset.Reader(in)), false
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		s, err := parse(lines.Bytes())
		if err != nil {
			return chosen, fmt.Errorf("line %d %w", n, err)
		}
		if s.Spot == 0 && s.Regular == 0 && s.SpotUSD == 0 {
			continue
		}
		priced = true
		if size != "" && bare(s.Size) != bare(size) || region != "" && !strings.EqualFold(s.Region, region) {
			continue
		}
		if chosen, err = chosen.with(s); err != nil {
			return chosen, err
		}
	}
	switch {
	case lines.Err() != nil:
		return chosen, lines.Err()
	case !priced:
		return chosen, errors.New("it has no price: give a file that spotctl prices -o json printed")
	case chosen.Size == "":
		return chosen, errors.New("it has no price of the given --size and --region")
	}
	return chosen, nil
}

// parse returns the size of a line, without a price where the line has none: it is empty, a gap,
// or an excluded size.
func parse(line []byte) (s Size, err error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(line, &s); err != nil {
		return s, fmt.Errorf("is not what spotctl prices -o json prints: %w", err)
	}
	s.Spot = cmp.Or(s.Spot, s.Price)
	switch {
	case s.Size == "":
		return Size{}, nil
	case s.Spot < 0 || s.Regular < 0 || !Currency.MatchString(s.Currency):
		return s, errors.New("has no currency, or a price that is negative")
	}
	return s, nil
}

// bare returns a size's name as it is compared.
func bare(size string) string {
	return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(size)), "standard_")
}

// with adds a further line about the same size.
func (s Size) with(other Size) (Size, error) {
	switch {
	case s.Size == "":
		return other, nil
	case other.Size != s.Size || other.Region != s.Region:
		return s, fmt.Errorf("it has prices of %s and of %s: choose with --size and --region", s, other)
	case other.Currency != s.Currency:
		return s, fmt.Errorf("it has prices of %s in %s and in %s: give a file of one currency", s, s.Currency, other.Currency)
	case Differ(other.Spot, s.Spot) || Differ(other.Regular, s.Regular):
		return s, fmt.Errorf("it has two prices of %s: give the newer output alone", s)
	}
	s.Spot, s.Regular = max(s.Spot, other.Spot), max(s.Regular, other.Regular)
	return s, nil
}
