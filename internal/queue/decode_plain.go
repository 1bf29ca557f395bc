package queue

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/spotworker/spotworker/internal/jobid"
)

// decodePlain reads an envelope in the form that most messages have: compact JSON with
// a few common fields, each once and without escapes. It rejects nothing: for
// any other form, valid or not, it returns false, and decodeFields reads the message. The
// fields of a plain envelope are too short for maxBeside.
func decodePlain(raw []byte) (Envelope, bool) {
	var e Envelope
	if !json.Valid(raw) || raw[0] != '{' || raw[len(raw)-1] != '}' {
		return e, false
	}
	seen := 0
	for rest := raw[1 : len(raw)-1]; len(rest) > 0; {
		name, value, behind, ok := nextField(rest)
		if !ok {
			return e, false
		}
		rest = behind
		bit, ok := e.setPlain(string(name), value)
		if !ok || seen&bit != 0 {
			return e, false
		}
		seen |= bit
	}
	const required = hasVersion | hasID | hasKind
	return e, seen&required == required && jobid.Validate(e.ID) == nil && jobid.ValidateKind(e.Kind) == nil
}

// The fields of a plain envelope.
const (
	hasVersion = 1 << iota
	hasID
	hasKind
	hasPayload
	hasEnqueuedAt
	hasChosenID
	hasResume
)

// setPlain sets a field, and returns its bit. ok is false for a field that plain envelopes lack,
// and for a value that is not plain.
func (e *Envelope) setPlain(name string, value []byte) (bit int, ok bool) {
	switch name {
	case "v":
		return hasVersion, string(value) == strconv.Itoa(Version)
	case "id":
		e.ID, ok = plainString(value)
		return hasID, ok
	case "kind":
		e.Kind, ok = plainString(value)
		return hasKind, ok
	case "payload":
		e.Payload = Payload{data: value, isJSON: true}
		return hasPayload, true
	case "enqueued_at":
		e.EnqueuedAt, ok = plainTime(value)
		return hasEnqueuedAt, ok
	case "chosen_id":
		e.ChosenID = true
		return hasChosenID, string(value) == "true"
	case "resume":
		e.Resume = true
		return hasResume, string(value) == "true"
	default:
		return 0, false
	}
}

// nextField returns the first field of a valid object's content, and the rest. ok is
// false if there are spaces around anything. A name with an escape is none of those that
// setPlain knows.
func nextField(content []byte) (name, value, behind []byte, ok bool) {
	if content[0] != '"' {
		return nil, nil, nil, false
	}
	end := bytes.IndexByte(content[1:], '"') + 1 // of the name, or at an escaped quote in it
	name = content[1:end]
	if content[end+1] != ':' {
		return nil, nil, nil, false
	}
	rest := content[end+2:]
	n, ok := compactValue(rest)
	if !ok {
		return nil, nil, nil, false
	}
	value, behind = rest[:n:n], rest[n:]
	if len(behind) > 0 {
		behind = behind[1:] // the comma
	}
	return name, value, behind, true
}

// compactValue returns how long the value at the start of valid JSON is. ok is false if
// there is white space in it or around it.
func compactValue(text []byte) (n int, ok bool) {
	depth, inString := 0, false
	for n < len(text) {
		switch c := text[n]; {
		case c == '\\': // only strings have it
			n++ // skips the escaped character
		case c == '"':
			inString = !inString
		case inString:
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			depth--
		case c == ',' && depth == 0:
			return n, true
		case c == ' ', c == '\t', c == '\r', c == '\n':
			return 0, false
		}
		n++
	}
	return n, true
}

// plainString returns the content of a value that is a string. An id or a kind with an escape
// or a character beyond ASCII is not valid, so that decodeFields reads the message.
func plainString(value []byte) (string, bool) {
	if value[0] != '"' {
		return "", false
	}
	return string(value[1 : len(value)-1]), true
}

// plainTime returns a time in UTC.
func plainTime(value []byte) (t time.Time, ok bool) {
	if !bytes.HasSuffix(value, []byte(`Z"`)) {
		return t, false
	}
	return t, t.UnmarshalJSON(value) == nil
}
