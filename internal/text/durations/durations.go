// Package durations reads durations as people type them: 90s, 10m, 2h, 7d, 1d12h. All flags,
// lines of jobs and files of settings read them here. It imports nothing of this module.
package durations

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spotworker/spotworker/internal/text/lazyregexp"
)

// day is 24 hours.
const day = 24 * time.Hour

// dayed is a text with days at its start, such as 7d or -1.5d12h.
var dayed = lazyregexp.New(`^([+-]?)(\d+(?:\.\d*)?|\.\d+)d(.*)$`)

// errForm is the error of a text that is no duration.
var errForm = errors.New("it must be a duration such as 90s, 10m, 2h or 7d")

// Parse returns a duration. It reads what [time.ParseDuration] does, and before that a number
// of days of 24 hours with the unit d.
func Parse(text string) (time.Duration, error) {
	match := dayed().FindStringSubmatch(text)
	if match == nil {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%.40q: %w", text, errForm)
		}
		return d, nil
	}
	days, err := strconv.ParseFloat(match[2], 64)
	rest := time.Duration(0)
	if match[3] != "" && err == nil {
		rest, err = time.ParseDuration(match[3])
	}
	whole := days * float64(day)
	if err != nil || match[3] != "" && (match[3][0] == '-' || match[3][0] == '+') || whole > math.MaxInt64/2 || rest > math.MaxInt64/2 {
		return 0, fmt.Errorf("%.40q: %w", text, errForm)
	}
	d := time.Duration(whole) + rest
	if match[1] == "-" {
		d = -d
	}
	return d, nil
}
