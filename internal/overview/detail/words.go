// Package detail describes one job or one worker in full, for people: in a terminal and on a
// page.
package detail

import (
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/overview"
)

// Ago returns how long ago a time was, for people.
func Ago(t, now time.Time) string {
	if t.IsZero() {
		return "?"
	}
	return overview.Span(now.Sub(t))
}

// Moment returns a time and how long ago it was, for people; empty for none.
func Moment(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s ago)", t.UTC().Format(time.RFC3339), Ago(t, now))
}

// Size is a number of bytes for people.
func Size(bytes int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	n, i := float64(bytes), 0
	for ; n >= 1024 && i < len(units)-1; i++ {
		n /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	return fmt.Sprintf("%.1f %s", n, units[i])
}
