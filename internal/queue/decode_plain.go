package queue

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/spotworker/spotworker/internal/jobid"
)

// maxPlainBeside bounds the fields beside the payload of a plain envelope, in bytes of
// its JSON: far enough below maxBeside that no way of writing them could exceed it.
const maxPlainBeside = maxBeside / 2

// decodePlain reads an envelope in the form that most messages have: compact JSON with
// a few common fields, each once and without escapes. It rejects nothing: for
// any other form, valid or not, it returns false, and decodeFields reads the message.
func decodePlain(raw []byte) (Envelope, bool) {
	var e Envelope
	if len(raw) < 2 || raw[0] != '{' || raw[len(raw)-1] != '}' || !json.Valid(raw) {
		return e, false
	}
	const hasVersion, hasID, hasKind, hasPayload, hasEnqueuedAt, hasChosenID, hasResume, hasAwaited = 1, 2, 4, 8, 16, 32, 64, 128
	seen, beside := 0, len(raw)
	for rest := raw[1 : len(raw)-1]; len(rest) > 0; {
		name, value, behind, ok := nextField(rest)
		if !ok {
			return e, false
		}
		rest = behind
		bit := 0
		switch string(name) {
		case "v":
			bit, ok = hasVersion, string(value) == strconv.Itoa(Version)
		case "id":
			bit = hasID
			e.ID, ok = plainString(value)
		case "kind":
			bit = hasKind
			e.Kind, ok = plainString(value)
		case "payload":
			bit, e.Payload = hasPayload, Payload{data: value, isJSON: true}
			beside -= len(value)
		case "enqueued_at":
			bit = hasEnqueuedAt
			e.EnqueuedAt, ok = plainTime(value)
		case "chosen_id":
			bit, e.ChosenID, ok = hasChosenID, true, string(value) == "true"
		case "resume":
			bit, e.Resume, ok = hasResume, true, string(value) == "true"
		case "awaited":
			bit, e.Awaited, ok = hasAwaited, true, string(value) == "true"
		}
		if !ok || bit == 0 || seen&bit != 0 {
			return e, false
		}
		seen |= bit
	}
	const required = hasVersion | hasID | hasKind
	return e, seen&required == required && beside <= maxPlainBeside && jobid.Validate(e.ID) == nil && jobid.ValidateKind(e.Kind) == nil
}

// nextField returns the first field of a valid object's content, and what is behind it.
// ok is false if there are spaces around anything, or the name has an escape.
func nextField(content []byte) (name, value, behind []byte, ok bool) {
	end := bytes.IndexByte(content[1:], '"') + 1
	name = content[1:max(end, 1)]
	if content[0] != '"' || end < 1 || bytes.IndexByte(name, '\\') >= 0 || end+2 > len(content) || content[end+1] != ':' {
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
		case inString && c == '\\':
			n++ // skips what is escaped
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

// plainString returns the content of a string without escapes.
func plainString(value []byte) (string, bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	content := value[1 : len(value)-1]
	for _, c := range content {
		if c < ' ' || c > '~' || c == '\\' {
			return "", false
		}
	}
	return string(content), true
}

// plainTime returns a time in UTC.
func plainTime(value []byte) (t time.Time, ok bool) {
	if !bytes.HasSuffix(value, []byte(`Z"`)) {
		return t, false
	}
	return t, t.UnmarshalJSON(value) == nil
}
