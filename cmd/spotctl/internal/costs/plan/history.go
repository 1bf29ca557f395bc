package plan

import (
	"time"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs/prices"
)

// window is how far back Azure keeps prices.
const window = 90 * 24 * time.Hour

// Past is the effect that a maximum price would have had over the price history.
type Past struct {
	Watched   time.Duration // how long a history there is; 0 if its prices have no dates
	Evictions int           // times that the price rose above the maximum
	Away      time.Duration // how long it was above
	Highest   float64       // price in USD
	Mean      float64       // price in USD while it was not above; 0 if it always was
}

// Rate returns the evictions for the price per hour of a VM that runs.
func (p Past) Rate() float64 {
	up := p.Watched - p.Away
	if p.Evictions == 0 || up <= 0 {
		return 0
	}
	return float64(p.Evictions) / up.Hours()
}

// Available returns the share of the time that the price was not above the maximum.
func (p Past) Available() float64 {
	if p.Watched <= 0 {
		return 1
	}
	return 1 - float64(p.Away)/float64(p.Watched)
}

// PastOf returns the effect of a maximum price until now; a maximum that is not positive
// never evicts. A price is in force until the next one.
func PastOf(history []prices.Point, maximum float64, now time.Time) Past {
	var p Past
	var paid float64 // USD, over all of the time below
	above := false
	for i, point := range history {
		end := now
		if point.From.After(now) {
			break
		}
		if i+1 < len(history) && history[i+1].From.Before(now) {
			end = history[i+1].From
		}
		begin := point.From
		if begin.Before(now.Add(-window)) && !begin.IsZero() {
			begin = now.Add(-window)
		}
		p.Highest = max(p.Highest, point.USD)
		if point.From.IsZero() || !end.After(begin) {
			continue
		}
		took := end.Sub(begin)
		isAbove := maximum > 0 && point.USD > maximum
		if isAbove {
			p.Away += took
		} else {
			paid += point.USD * took.Hours()
		}
		if isAbove && !above && p.Watched > 0 { // a history that begins above never started a VM
			p.Evictions++
		}
		above = isAbove
		p.Watched += took
	}
	if up := p.Watched - p.Away; up > 0 {
		p.Mean = paid / up.Hours()
	}
	return p
}
