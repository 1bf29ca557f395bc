package presence

import (
	"net/url"
	"strings"
	"time"
)

// maxReady bounds the list of events, so that the metadata stays small: far more
// than are ever announced for one VM.
const maxReady = 16

// Ready is a scheduled event that a worker is done for.
type Ready struct {
	// ID is the event's.
	ID string

	// NotBefore is the event's time as it was then, in whole seconds; zero if it had
	// none. Of an event that was put off since, the worker is not done for.
	NotBefore time.Time
}

// Covers reports whether what was done for an event counts for the one with this
// id, compared without case, and time.
func (r Ready) Covers(id string, notBefore time.Time) bool {
	return strings.EqualFold(r.ID, id) && !notBefore.Truncate(time.Second).After(r.NotBefore)
}

// formatReady lists the events as id@time. What parts them is escaped in an id.
func formatReady(events []Ready) string {
	var parts []string
	for _, e := range events[:min(len(events), maxReady)] {
		at := ""
		if !e.NotBefore.IsZero() {
			at = e.NotBefore.UTC().Format(time.RFC3339)
		}
		parts = append(parts, url.QueryEscape(e.ID)+"@"+at)
	}
	return strings.Join(parts, ",")
}

func parseReady(text string) []Ready {
	var events []Ready
	for part := range strings.SplitSeq(text, ",") {
		id, at, ok := strings.Cut(part, "@")
		if id, err := url.QueryUnescape(id); ok && err == nil && id != "" {
			notBefore, _ := time.Parse(time.RFC3339, at)
			events = append(events, Ready{ID: id, NotBefore: notBefore})
		}
	}
	return events
}
