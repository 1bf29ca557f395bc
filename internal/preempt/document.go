package preempt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Document is one good answer of the scheduled events endpoint.
type Document struct {
	// Incarnation changes when the events do. It is a number to the service,
	// but only inequality means anything, so it is kept as text. Empty if the
	// answer had none.
	Incarnation string

	// Events holds every event of the placement group, also of other VMs, in the order of
	// the answer.
	Events []Event

	// Date is the service's clock when it answered, from the answer's Date
	// header: UTC, cut to a whole second. Zero if there was none.
	Date time.Time

	// ReceivedAt is the local clock when the answer's header arrived.
	ReceivedAt time.Time
}

// Event is one entry of a [Document].
// It has the fields of api-version 2020-07-01; 2024-07-09 adds a type and a status, no
// field.
type Event struct {
	// ID is the service's name for the event, a GUID.
	ID string

	// Type is the announced event; one of the Type constants in their spelling, or the
	// service's own text for any other type.
	Type string

	// Status is one of the Status constants in their spelling, or the
	// service's own text.
	Status string

	// Resources names the VMs that the event is about.
	Resources []string

	// NotBefore is the earliest start by the service's clock. Zero if it is
	// not known: blank, as for a Started event, or not readable as a time.
	NotBefore time.Time

	// Description is a sentence for people. A Preempt has none.
	Description string

	// Source is SourcePlatform, SourceUser, or the service's own text.
	Source string

	// Duration is how long the interruption will last, or UnknownDuration.
	Duration time.Duration
}

// Event types. An eviction is a Preempt; a rebalance recommendation says that one is
// more likely now. The others are maintenance, or an operation that a user requested.
const (
	TypePreempt   = "Preempt"
	TypeTerminate = "Terminate"
	TypeReboot    = "Reboot"
	TypeRedeploy  = "Redeploy"
	TypeFreeze    = "Freeze"
	TypeRebalance = "SpotRebalanceRecommendation"
)

// Event statuses. There is none for an event that is over: it is no longer
// listed. An Advisory event has no start and asks for nothing.
const (
	StatusScheduled = "Scheduled"
	StatusStarted   = "Started"
	StatusAdvisory  = "Advisory"
)

// Event sources.
const (
	SourcePlatform = "Platform"
	SourceUser     = "User"
)

// UnknownDuration is the Duration of an event whose length the service does
// not know or did not say.
const UnknownDuration time.Duration = -1

// dateResolution is the resolution of an HTTP Date, which is truncated, not rounded.
const dateResolution = time.Second

// Now converts local, a time of the local clock, to the service's clock: the answer's
// Date plus the time since. Date is truncated to seconds, so Now assumes the latest time
// that it can mean: a budget that is up to a second too short is harmless, a longer one
// is not. Without a Date it returns local.
func (d Document) Now(local time.Time) time.Time {
	if d.Date.IsZero() || d.ReceivedAt.IsZero() {
		return local
	}
	return d.Date.Add(dateResolution + local.Sub(d.ReceivedAt))
}

// Event returns the event with the given id, compared without case. An id that is
// missing from a later document means that the event is over or was withdrawn.
func (d Document) Event(id string) (Event, bool) {
	for _, e := range d.Events {
		if strings.EqualFold(e.ID, id) {
			return e, true
		}
	}
	return Event{}, false
}

// sameEvents reports whether d and other have the same incarnation and events. The
// incarnation alone is not enough: after a move to another host the numbers may start
// again.
func (d Document) sameEvents(other Document) bool {
	return d.Incarnation == other.Incarnation && reflect.DeepEqual(d.Events, other.Events)
}

// ErrMalformed is the error of an answer that is not the expected document. It never
// quotes the answer, which may contain anything.
var ErrMalformed = errors.New("not a metadata document")

// parseDocument reads the body of a scheduled events answer.
//
// It is strict about the whole and lenient about the parts. A body without an Events
// list is refused, since an error that reads as "no events" would hide an eviction; a
// null in place of the list counts as an empty list if the body has a numeric
// incarnation, which no error has. In the list, an invalid event or field never hides
// another one: fields of the wrong type read as unknown, unknown fields are ignored,
// and the event still counts.
func parseDocument(body []byte) (Document, error) {
	var raw struct {
		DocumentIncarnation looseText
		Events              []json.RawMessage
	}
	if err := json.Unmarshal(trimBOM(body), &raw); err != nil {
		return Document{}, fmt.Errorf("%w: %s", ErrMalformed, jsonProblem(err))
	}
	if raw.Events == nil && !(isNumber(raw.DocumentIncarnation) && hasNullEvents(body)) {
		return Document{}, fmt.Errorf("%w: it has no list of Events", ErrMalformed)
	}
	return Document{
		Incarnation: string(raw.DocumentIncarnation),
		Events:      parseEvents(raw.Events),
	}, nil
}

func isNumber(t looseText) bool {
	_, err := strconv.ParseUint(string(t), 10, 64)
	return err == nil
}

// hasNullEvents reports whether a body has null for its list of events, which is not
// the same as no list.
func hasNullEvents(body []byte) bool {
	var raw struct{ Events json.RawMessage }
	return json.Unmarshal(trimBOM(body), &raw) == nil && string(raw.Events) == "null"
}

// parseEvents returns every entry that is an object, and skips the others.
func parseEvents(list []json.RawMessage) []Event {
	events := make([]Event, 0, len(list))
	for _, entry := range list {
		var raw rawEvent
		if !isObject(entry) || json.Unmarshal(entry, &raw) != nil {
			continue
		}
		events = append(events, raw.event())
	}
	return events
}

// rawEvent has the wire's field names. encoding/json compares them without
// case, as does the service.
type rawEvent struct {
	EventID           looseText
	EventType         looseText
	EventStatus       looseText
	Resources         looseList
	NotBefore         looseText
	Description       looseText
	EventSource       looseText
	DurationInSeconds looseText
}

func (r rawEvent) event() Event {
	return Event{
		ID:          string(r.EventID),
		Type:        canonical(r.EventType, TypePreempt, TypeTerminate, TypeReboot, TypeRedeploy, TypeFreeze, TypeRebalance),
		Status:      canonical(r.EventStatus, StatusScheduled, StatusStarted, StatusAdvisory),
		Resources:   r.Resources,
		NotBefore:   parseTime(string(r.NotBefore)),
		Description: string(r.Description),
		Source:      canonical(r.EventSource, SourcePlatform, SourceUser),
		Duration:    parseSeconds(string(r.DurationInSeconds)),
	}
}

// canonical returns the known spelling of text, or text itself.
func canonical(text looseText, known ...string) string {
	for _, k := range known {
		if strings.EqualFold(string(text), k) {
			return k
		}
	}
	return string(text)
}

// timeLayouts are the formats of a NotBefore. The first is the documented one; its "2"
// parses days of one and of two digits; both occur.
var timeLayouts = []string{
	"Mon, 2 Jan 2006 15:04:05 GMT",
	"Mon, 2 Jan 2006 15:04:05 UTC",
	"Mon, 2 Jan 2006 15:04:05 -0700",
	time.RFC3339,
}

// parseTime returns the time in UTC, or zero if text is not a time.
func parseTime(text string) time.Time {
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

// parseSeconds returns UnknownDuration for anything but a number of seconds from 0 to the
// longest Duration. The service says −1 for "not known".
func parseSeconds(text string) time.Duration {
	const most = math.MaxInt64 / int64(time.Second)
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= 0 && seconds < float64(most)) {
		return UnknownDuration
	}
	return time.Duration(seconds * float64(time.Second))
}

// looseText reads a JSON string, number or boolean as text without surrounding
// space, and anything else as empty. It never fails.
type looseText string

func (t *looseText) UnmarshalJSON(raw []byte) error {
	switch raw[0] {
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		*t = looseText(strings.TrimSpace(s))
	case '{', '[', 'n':
		*t = ""
	default:
		*t = looseText(raw)
	}
	return nil
}

// looseList reads a JSON list of texts, or a single text as a list of one, and
// leaves out entries that are empty. It never fails.
type looseList []string

func (l *looseList) UnmarshalJSON(raw []byte) error {
	var texts []looseText
	if json.Unmarshal(raw, &texts) != nil {
		texts = make([]looseText, 1)
		if err := json.Unmarshal(raw, &texts[0]); err != nil {
			return err
		}
	}
	*l = nil
	for _, t := range texts {
		if t != "" {
			*l = append(*l, string(t))
		}
	}
	return nil
}

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// trimBOM removes the byte order mark that some JSON writers put in front.
func trimBOM(body []byte) []byte { return bytes.TrimPrefix(body, []byte("\ufeff")) }

// jsonProblem describes a JSON error without quoting the body.
func jsonProblem(err error) string {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("not JSON from byte %d on", syntax.Offset)
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && kind.Field != "" {
		return fmt.Sprintf("%s is of the wrong kind", kind.Field)
	}
	return "it is not an object"
}
