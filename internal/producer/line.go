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
	MaxRun        *string         `json:"max_run"`
	MaxSilence    *string         `json:"max_silence"`
}

// parseSpec reads a line. An unknown field is an error: it is a typing mistake
// more often than not, and the job would run without what it was meant to say.
// usual are the terms of a line which names none. What could be read comes with
// the error.
func parseSpec(line []byte, usual Terms) (Spec, error) {
	var l lineJSON
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return Spec{}, readable(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Spec{}, errors.New("it has more than one JSON value")
	}
	spec := Spec{Kind: l.Kind, Terms: usual}
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
	if err := l.terms(&spec.Terms); err != nil {
		return spec, err
	}
	var err error
	spec.Payload, err = l.payload()
	return spec, err
}

// terms sets those that the line names.
func (l *lineJSON) terms(t *Terms) error {
	for _, field := range []struct {
		name, example string
		text          *string
		to            *time.Duration
	}{
		{"delay", "90s or 24h, up to 168h", l.Delay, &t.Delay},
		{"max_run", "90s or 24h", l.MaxRun, &t.MaxRun},
		{"max_silence", "90s or 10m", l.MaxSilence, &t.MaxSilence},
	} {
		if field.text == nil {
			continue
		}
		d, err := time.ParseDuration(*field.text)
		if err != nil {
			return fmt.Errorf("field %s is %.40q; it must be a time such as %s", field.name, *field.text, field.example)
		}
		*field.to = d
	}
	return nil
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
		return fmt.Errorf("%s; known are id, kind, payload, payload_base64, deadline, delay, max_run and max_silence", text)
	}
	return fmt.Errorf("it is not JSON: %s", text)
}
