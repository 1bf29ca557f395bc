package producer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
)

// lineJSON is a job on a line. Pointers tell absent from empty.
type lineJSON struct {
	ID            *string         `json:"id"`
	Kind          string          `json:"kind"`
	Payload       json.RawMessage `json:"payload"`
	PayloadBase64 *string         `json:"payload_base64"`
	Deadline      *string         `json:"deadline"`
	Delay         *string         `json:"delay"`
}

// parseSpec reads a line. An unknown field is an error: it is a typing mistake
// more often than not, and the job would run without what it was meant to say.
// delay is that of a line which names none. What could be read comes with the
// error.
func parseSpec(line []byte, delay time.Duration) (Spec, error) {
	var l lineJSON
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return Spec{}, readable(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Spec{}, errors.New("it has more than one JSON value")
	}
	spec := Spec{Kind: l.Kind, Delay: delay}
	if l.ID != nil {
		if *l.ID == "" {
			return spec, errors.New("field id is empty; leave it out for a new id")
		}
		spec.ID = *l.ID
	}
	if l.Kind == "" {
		return spec, errors.New("field kind is missing or empty")
	}
	if l.Deadline != nil {
		deadline, err := time.Parse(time.RFC3339, *l.Deadline)
		if err != nil {
			return spec, fmt.Errorf("field deadline is %.40q; it must be a time such as 2026-01-31T09:30:00Z", *l.Deadline)
		}
		spec.Deadline = deadline
	}
	if l.Delay != nil {
		wait, err := time.ParseDuration(*l.Delay)
		if err != nil {
			return spec, fmt.Errorf("field delay is %.40q; it must be a time such as 90s or 24h, up to 168h", *l.Delay)
		}
		spec.Delay = wait
	}
	var err error
	spec.Payload, err = l.payload()
	return spec, err
}

func (l *lineJSON) payload() (queue.Payload, error) {
	switch {
	case l.Payload != nil && l.PayloadBase64 != nil:
		return queue.Payload{}, errors.New("both payload and payload_base64 are given")
	case l.Payload != nil:
		return queue.JSONPayload(l.Payload)
	case l.PayloadBase64 != nil:
		data, err := base64.StdEncoding.DecodeString(*l.PayloadBase64)
		if err != nil {
			return queue.Payload{}, fmt.Errorf("field payload_base64: %w", err)
		}
		return queue.BytesPayload(data), nil
	}
	return queue.Payload{}, nil
}

// readable says what is wrong with a line in the words of its fields.
func readable(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case ok && wrong.Field != "":
		return fmt.Errorf("field %s is a JSON %s; it must be a string", wrong.Field, wrong.Value)
	case ok:
		return fmt.Errorf("it is a JSON %s; it must be an object", wrong.Value)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it is not JSON: it ends too early")
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if strings.HasPrefix(text, "unknown field") {
		return fmt.Errorf("%s; known are id, kind, payload, payload_base64, deadline and delay", text)
	}
	return fmt.Errorf("it is not JSON: %s", text)
}
