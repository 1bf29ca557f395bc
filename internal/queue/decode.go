package queue

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/text/charset"
)

// maxInvalid limits the reason of an InvalidError, in bytes: the errors of encoding/json
// and time quote the text that they could not read.
const maxInvalid = 256

// ErrForeign means that the text is not an envelope, but another program's message.
var ErrForeign = errors.New("message is not a spotworker envelope")

// InvalidError says why an envelope cannot be used.
type InvalidError struct {
	ID     string // the job's id, or empty if it could not be read
	Reason string
}

func (e *InvalidError) Error() string { return e.Reason }

// Decode reads a message's text. A JSON object with the field v, in base64 or as
// plain text, is an envelope; for anything else the error is [ErrForeign]. For an
// envelope that cannot be used it is an [*InvalidError]: Decode never guesses.
func Decode(text string) (Envelope, error) {
	fields, ok := envelopeFields(rawEnvelope(text))
	if !ok {
		return Envelope{}, ErrForeign
	}
	invalid := func(format string, args ...any) (Envelope, error) {
		return Envelope{}, &InvalidError{ID: readableID(fields), Reason: cut(fmt.Sprintf(format, args...), maxInvalid)}
	}
	if v := string(fields["v"]); v != strconv.Itoa(Version) {
		return invalid("envelope has version %.20s; this worker reads version %d", v, Version)
	}
	if _, ok := fields["poisoned_at"]; ok {
		return invalid("message is a poison message; it must be replayed, not processed")
	}
	e, err := decodeFields(fields)
	if err != nil {
		return invalid("envelope cannot be read: %v", err)
	}
	if err := e.Validate(); err != nil {
		return invalid("%v", err)
	}
	return e, nil
}

// Foreign returns the envelope of another program's message: a job of the given
// kind with the message's id, whose payload is the text as it was delivered.
func Foreign(text, messageID, kind string, inserted time.Time) Envelope {
	return Envelope{ID: messageID, Kind: kind, Payload: BytesPayload([]byte(text)), EnqueuedAt: inserted}
}

// rawEnvelope returns the envelope in a message's text: the text itself unless it is
// base64, in UTF-8.
func rawEnvelope(text string) []byte {
	if decoded, err := base64.StdEncoding.DecodeString(text); err == nil {
		return charset.Text(decoded)
	}
	return charset.Text([]byte(text))
}

// envelopeFields returns the fields of a JSON object that has v. They are read by
// their exact names, since encoding/json ignores case.
func envelopeFields(raw []byte) (map[string]json.RawMessage, bool) {
	if !bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) {
		return nil, false
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, false
	}
	_, ok := fields["v"]
	return fields, ok
}

// readableID returns the id for a poison message, or "" if it is not valid.
func readableID(fields map[string]json.RawMessage) string {
	var id string
	if json.Unmarshal(fields["id"], &id) != nil || jobid.Validate(id) != nil {
		return ""
	}
	return id
}

func decodeFields(fields map[string]json.RawMessage) (Envelope, error) {
	var w envelopeJSON
	var unknown map[string]json.RawMessage
	for name, raw := range fields {
		place, ok := places[name]
		switch {
		case ok:
			if err := json.Unmarshal(raw, place(&w)); err != nil {
				return Envelope{}, fmt.Errorf("field %s: %w", name, err)
			}
		case name != "v" && name != "payload":
			if unknown == nil {
				unknown = map[string]json.RawMessage{}
			}
			unknown[name] = raw
		}
	}
	payload, err := decodePayload(fields["payload"], w.PayloadBase64, w.PayloadRef)
	if err != nil {
		return Envelope{}, err
	}
	inputs, err := CompactInputs(w.Inputs)
	if err != nil {
		return Envelope{}, fmt.Errorf("field inputs: %w", err)
	}
	return Envelope{
		ID: w.ID, Kind: w.Kind, Payload: payload, Trace: usableTrace(w.Trace), ChosenID: w.ChosenID,
		Group: w.Group, Resume: w.Resume, Again: w.Again,
		EnqueuedAt: timeOrZero(w.EnqueuedAt), Deadline: timeOrZero(w.Deadline), Estimate: time.Duration(w.Estimate),
		MaxRun: time.Duration(w.MaxRun), MaxSilence: time.Duration(w.MaxSilence), MaxFailures: w.MaxFailures,
		PutBackSince: timeOrZero(w.PutBackSince), Inputs: inputs, unknown: unknown,
	}, nil
}

// places are where the fields of an envelope are decoded to, by name.
var places = map[string]func(*envelopeJSON) any{
	"id":             func(w *envelopeJSON) any { return &w.ID },
	"kind":           func(w *envelopeJSON) any { return &w.Kind },
	"payload_base64": func(w *envelopeJSON) any { return &w.PayloadBase64 },
	"payload_ref":    func(w *envelopeJSON) any { return &w.PayloadRef },
	"enqueued_at":    func(w *envelopeJSON) any { return &w.EnqueuedAt },
	"deadline":       func(w *envelopeJSON) any { return &w.Deadline },
	"estimate":       func(w *envelopeJSON) any { return &w.Estimate },
	"max_run":        func(w *envelopeJSON) any { return &w.MaxRun },
	"max_silence":    func(w *envelopeJSON) any { return &w.MaxSilence },
	"max_failures":   func(w *envelopeJSON) any { return &w.MaxFailures },
	"trace":          func(w *envelopeJSON) any { return &w.Trace },
	"chosen_id":      func(w *envelopeJSON) any { return &w.ChosenID },
	"group":          func(w *envelopeJSON) any { return &w.Group },
	"resume":         func(w *envelopeJSON) any { return &w.Resume },
	"again":          func(w *envelopeJSON) any { return &w.Again },
	"put_back_since": func(w *envelopeJSON) any { return &w.PutBackSince },
	"inputs":         func(w *envelopeJSON) any { return &w.Inputs },
}

// usableTrace returns a trace that is valid, and nothing for another: as W3C Trace
// Context demands, the job is done without it. A trace that no message has room for is
// refused with the message.
func usableTrace(trace string) string {
	if len(trace) <= maxBeside && checkTrace(trace) != nil {
		return ""
	}
	return trace
}

// CompactInputs returns the JSON array of inputs as compact text, nil for an empty one.
func CompactInputs(raw json.RawMessage) (json.RawMessage, error) {
	if raw == nil {
		return nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil || list == nil {
		return nil, errors.New("it must be a list")
	}
	if len(list) == 0 {
		return nil, nil
	}
	var compact bytes.Buffer
	err := json.Compact(&compact, raw)
	return compact.Bytes(), err
}

func decodePayload(raw json.RawMessage, encoded *[]byte, ref *Ref) (Payload, error) {
	given := 0
	for _, present := range []bool{raw != nil, encoded != nil, ref != nil} {
		if present {
			given++
		}
	}
	switch {
	case given > 1:
		return Payload{}, errors.New("more than one of payload, payload_base64 and payload_ref is given")
	case raw != nil:
		return JSONPayload(raw)
	case encoded != nil:
		return BytesPayload(*encoded), nil
	case ref != nil:
		return Payload{ref: ref}, ref.validate()
	}
	return Payload{}, nil
}

func (r *Ref) validate() error {
	if sum, _ := hex.DecodeString(r.SHA256); len(sum) != sha256.Size || hex.EncodeToString(sum) != r.SHA256 {
		return errors.New("field payload_ref: sha256 must be 64 lower-case hex digits")
	}
	if r.Size < 0 {
		return errors.New("field payload_ref: size must not be negative")
	}
	return nil
}
