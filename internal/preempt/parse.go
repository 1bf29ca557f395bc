package preempt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ErrMalformed is the error of an answer that is not the document it should
// be. It never quotes the answer, which may hold anything.
var ErrMalformed = errors.New("not a metadata document")

// parseDocument reads the body of a scheduled events answer.
//
// It is strict about the whole and tolerant about the parts. A body without an
// Events list is refused, since to read an error as "no events" would hide an
// eviction; a null in its place counts as an empty list where the body has a
// numeric incarnation, which no error has. Within the list no oddity of one event, or of one field, hides
// another: fields of an unexpected kind read as unknown, unknown fields are
// ignored, and the event still counts.
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

// hasNullEvents reports whether a body says null for its list of events, which is
// not the same as to leave it out.
func hasNullEvents(body []byte) bool {
	var raw struct{ Events json.RawMessage }
	return json.Unmarshal(trimBOM(body), &raw) == nil && string(raw.Events) == "null"
}

// parseEvents keeps every entry that is an object. Anything else says nothing
// that could be acted on.
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

// timeLayouts are the forms a NotBefore may have. The first is the documented
// one; its "2" reads days of one and of two digits, both of which occur.
var timeLayouts = []string{
	"Mon, 2 Jan 2006 15:04:05 GMT",
	"Mon, 2 Jan 2006 15:04:05 UTC",
	"Mon, 2 Jan 2006 15:04:05 -0700",
	time.RFC3339,
}

// parseTime returns the time in UTC, or zero for a text that is none.
func parseTime(text string) time.Time {
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

// parseSeconds returns UnknownDuration for anything but a number of seconds
// from 0 to what a Duration can hold. The service says −1 for "not known".
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

// jsonProblem says what is wrong with a body without quoting it.
func jsonProblem(err error) string {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("not JSON from byte %d on", syntax.Offset)
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && kind.Field != "" {
		return fmt.Sprintf("%s is of the wrong kind", kind.Field)
	}
	return "it is not an object"
}
