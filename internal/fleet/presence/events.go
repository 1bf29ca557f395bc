package presence

import (
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxReady limits the list of events, so that the metadata stays small. It is far
// above the number of events that are ever announced for one VM.
const maxReady = 16

// Ready is a scheduled event that a worker is ready for.
type Ready struct {
	// ID is the event's.
	ID string

	// NotBefore is the event's time when the worker became ready, in whole seconds;
	// zero if it had none. The worker is not ready for an event that was postponed.
	NotBefore time.Time
}

// Covers reports whether the worker is ready for the event with this id, compared
// without case, and time.
func (r Ready) Covers(id string, notBefore time.Time) bool {
	return strings.EqualFold(r.ID, id) && !notBefore.Truncate(time.Second).After(r.NotBefore)
}

// formatReady lists the events as id@time. Separators are escaped in an id.
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

// Event is a scheduled event as a worker handled it, for people.
type Event struct {
	ID, Type, Status, Source string
	NotBefore                time.Time // zero if it has none
	Duration                 string    // in words
	Description              string
	Action                   string // how the worker responded
	SeenAt                   time.Time
}

// Drain is the result of a drain.
type Drain struct {
	Reason   string
	EndedAt  time.Time
	Took     time.Duration // from the notice
	Budget   time.Duration
	Jobs     int // at the beginning
	Done     int // committed during the drain
	Released int
	LeftOut  int // released without their last state
	Left     int // not released in time

	// Lost is the work of the released jobs that no record has: they repeat it.
	Lost time.Duration
}

// format returns the event in the form of a URL query: short, and ASCII only.
func (e Event) format() string {
	return encode(map[string]string{
		"id": e.ID, "type": e.Type, "status": e.Status, "source": e.Source, "notbefore": formatTime(e.NotBefore),
		"duration": e.Duration, "description": e.Description, "action": e.Action, "seenat": formatTime(e.SeenAt),
	})
}

func (d Drain) format() string {
	if d.EndedAt.IsZero() {
		return ""
	}
	return encode(map[string]string{
		"reason": d.Reason, "endedat": formatTime(d.EndedAt),
		"took": d.Took.Round(time.Millisecond).String(), "budget": d.Budget.Round(time.Millisecond).String(),
		"jobs": strconv.Itoa(d.Jobs), "released": strconv.Itoa(d.Released), "done": strconv.Itoa(d.Done),
		"leftout": strconv.Itoa(d.LeftOut), "left": strconv.Itoa(d.Left), "lost": d.Lost.Round(time.Millisecond).String(),
	})
}

// Limits of a field's encoded form, in bytes. The service allows 8 KiB for all
// metadata of a blob.
const (
	maxField       = 64
	maxDescription = 256
)

// encode leaves out empty fields and cuts long ones.
func encode(fields map[string]string) string {
	values := url.Values{}
	for name, text := range fields {
		most := maxField
		if name == "description" || name == "gpus" { // sentences
			most = maxDescription
		}
		if text = cut(text, most); text != "" {
			values.Set(name, text)
		}
	}
	return values.Encode()
}

// cut shortens the text to at most that many bytes in encoded form.
func cut(text string, most int) string {
	var b strings.Builder
	for _, r := range text { // bytes that are no UTF-8 become replacement characters
		if most -= len(url.QueryEscape(string(r))); most < 0 {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// parseEvent and parseDrain leave out fields that they cannot read.
func parseEvent(text string) Event {
	values, _ := url.ParseQuery(text) // the fields that could be read
	return Event{
		ID: values.Get("id"), Type: values.Get("type"), Status: values.Get("status"), Source: values.Get("source"),
		NotBefore: parseTime(values.Get("notbefore")), Duration: values.Get("duration"),
		Description: values.Get("description"), Action: values.Get("action"), SeenAt: parseTime(values.Get("seenat")),
	}
}

func parseDrain(text string) Drain {
	values, _ := url.ParseQuery(text) // the fields that could be read
	number := func(name string) int {
		n, _ := strconv.Atoi(values.Get(name))
		return n
	}
	took, _ := time.ParseDuration(values.Get("took"))
	budget, _ := time.ParseDuration(values.Get("budget"))
	lost, _ := time.ParseDuration(values.Get("lost"))
	return Drain{
		Reason: values.Get("reason"), EndedAt: parseTime(values.Get("endedat")), Took: took, Budget: budget,
		Jobs: number("jobs"), Released: number("released"), Done: number("done"), LeftOut: number("leftout"), Left: number("left"), Lost: lost,
	}
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func parseTime(text string) time.Time {
	t, _ := time.Parse(time.RFC3339, text)
	return t
}
