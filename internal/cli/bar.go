package cli

import (
	"fmt"
	"strings"
)

// ClearLine clears a line of a terminal.
const ClearLine = "\x1b[2K\r"

// Bar returns a line for a terminal that shows how far something is. A negative fraction is
// not known.
func Bar(what string, fraction float64, remark string) string {
	if fraction >= 0 {
		const width = 24
		fraction = min(fraction, 1)
		done := int(width * fraction)
		what += fmt.Sprintf(" %3.0f%% [%s%s]", 100*fraction, strings.Repeat("#", done), strings.Repeat(" ", width-done))
	}
	return ClearLine + what + " " + remark
}
