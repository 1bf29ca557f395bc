package text

import (
	"fmt"
	"strconv"
	"strings"
)

// Promise is a promise and its measurement. One without a verdict is a heading.
type Promise struct{ Label, Measured, Promised, Verdict string }

// The verdicts.
const (
	Kept   = "ok"
	Late   = "late"
	Broken = "BROKEN"
)

// String says what was measured.
func (p Promise) String() string {
	return fmt.Sprintf("%s: %s, promised %s", p.Label, p.Measured, p.Promised)
}

// Judged returns a promise that was kept or broken.
func Judged(label, measured, promised string, isKept bool) Promise {
	p := Promise{label, measured, promised, Kept}
	if !isKept {
		p.Verdict = Broken
	}
	return p
}

// Exactly returns a promise of a number.
func Exactly(label string, got, want int) Promise {
	return Judged(label, strconv.Itoa(got), strconv.Itoa(want), got == want)
}

// TableWidth is the width of a table of promises, in columns.
const TableWidth = 78

// Table returns promises as a table.
func Table(promises []Promise) string {
	var b strings.Builder
	rule := strings.Repeat("-", TableWidth) + "\n"
	fmt.Fprintf(&b, "%-44s%12s  %s\n%s", "promise", "measured", "promised", rule)
	for _, p := range promises {
		if p.Verdict == "" {
			fmt.Fprintln(&b, p.Label)
		} else {
			fmt.Fprintf(&b, "  %-42s%12s  %-13s %s\n", p.Label, p.Measured, p.Promised, p.Verdict)
		}
	}
	return b.String() + rule
}
