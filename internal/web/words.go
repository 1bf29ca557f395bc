package web

import (
	"fmt"
	"html/template"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// How many bytes of a text a page shows: in a list, in a line of a log, and of a result.
const (
	listed    = 300
	lineShown = 4096
	shown     = 64 << 10
)

// clip returns the start of a text that is longer than most bytes.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// line is a text from storage on one line, for a page.
func line(text string) string { return plaintext.Line(clip(text, lineShown)) }

// slotTime is a time of slots, in seconds, for people.
func slotTime(seconds float64) string {
	switch {
	case seconds < 1:
		return fmt.Sprintf("%.2f s", seconds)
	case seconds < 120:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 2*3600:
		return fmt.Sprintf("%.0f min", seconds/60)
	}
	return fmt.Sprintf("%.1f h", seconds/3600)
}

// ago is an element that says how long ago a time was. The script keeps it right.
func ago(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	t = t.Round(time.Second).UTC()
	element := `<time datetime="` + t.Format(time.RFC3339) + `" title="` + t.Format("2006-01-02 15:04:05 UTC") + `">` +
		overview.Span(time.Since(t)) + ` ago</time>`
	return template.HTML(element) //nolint:gosec // formatted times
}

// sentence is a problem with its commands set apart from its words.
func sentence(text string) template.HTML {
	var b strings.Builder
	for text = line(text); ; {
		before, rest, found := strings.Cut(text, "spotctl ")
		b.WriteString(template.HTMLEscapeString(before))
		if !found {
			break
		}
		end := len(rest)
		for _, stop := range []string{";", ": ", ", ", " says ", " shows ", " lists ", ")"} {
			if i := strings.Index(rest, stop); i >= 0 {
				end = min(end, i)
			}
		}
		b.WriteString("<code>" + template.HTMLEscapeString("spotctl "+rest[:end]) + "</code>")
		text = rest[end:]
	}
	return template.HTML(b.String()) //nolint:gosec // escaped above
}
