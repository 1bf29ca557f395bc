package web

import (
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spotworker/spotworker/client"
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

// sentence is a problem with its commands set apart from its words, and links to what it names.
func (v view) sentence(text string) template.HTML {
	var b strings.Builder
	for text = line(text); ; {
		before, rest, found := strings.Cut(text, "spotctl ")
		v.link(&b, before)
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

// named matches what a problem may name.
var named = regexp.MustCompile(`\b(VM|kind|job|worker|queue) "?([A-Za-z0-9._~-]*[A-Za-z0-9_~-])"?|` +
	`dead-lettered messages?|records? (is|are) of a newer version|jobs? (is|are) running`)

// link writes words of a problem. What they name is a link where there is a page for it.
func (v view) link(b *strings.Builder, text string) {
	at := 0
	for _, m := range named.FindAllStringSubmatchIndex(text, -1) {
		var address string
		switch {
		case m[2] >= 0:
			address = v.addressNamed(text[m[2]:m[3]], text[m[4]:m[5]])
		case strings.HasPrefix(text[m[0]:], "dead-lettered"):
			address = "/poison"
		case strings.HasPrefix(text[m[0]:], "job"):
			address = addressOfJobs("", string(client.StatusRunning))
		default:
			address = addressOfJobs("", string(client.StatusUnknown))
		}
		if address != "" {
			b.WriteString(template.HTMLEscapeString(text[at:m[0]]))
			fmt.Fprintf(b, `<a href="%s">%s</a>`, template.HTMLEscapeString(address), template.HTMLEscapeString(text[m[0]:m[1]]))
			at = m[1]
		}
	}
	b.WriteString(template.HTMLEscapeString(text[at:]))
}

// addressNamed returns the address of the page for a thing that a problem names; empty if there is none.
func (v view) addressNamed(what, name string) string {
	switch what {
	case "VM":
		if slices.ContainsFunc(v.activity.VMs, func(vm overview.VM) bool { return vm.Name == name }) {
			return "/workers#vm-" + url.PathEscape(name)
		}
	case "worker":
		if slices.ContainsFunc(v.Workers, func(w client.Worker) bool { return w.Name == name }) {
			return selection{Worker: name, Sort: latestFirst}.Address()
		}
	case "kind":
		if slices.Contains(v.kinds, name) {
			return addressOfJobs(name)
		}
	case "job":
		if slices.ContainsFunc(v.jobs, func(j client.Job) bool { return j.ID == name }) {
			return addressOf(name)
		}
	case "queue":
		return "/waiting"
	}
	return ""
}
