package producer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/program/command"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/text/charset"
	"github.com/spotworker/spotworker/internal/text/durations"
)

// maxLine is the longest line, in bytes: the largest payload in base64, plus room for
// the other fields.
const maxLine = queue.MaxPayload/3*4 + 64<<10

// errLineTooLong means that a line was skipped because of its length.
var errLineTooLong = fmt.Errorf("it is longer than %d bytes: put large data in a blob and name it in the payload", maxLine)

// Lines yields the job of each line of r. A line is a JSON object:
//
//	{"kind":"digest","payload":{"container":"data","blob":"a"}}
//	{"id":"frame-7","kind":"render","payload_base64":"AAEC","deadline":"2026-01-31T09:30:00Z","delay":"90s"}
//
// Only kind is required; group is the name of a group of jobs; max_run, max_silence and estimate are durations like delay, max_failures
// is a number, and inputs is a list as in a message. A term that a line does not set is taken from defaults. Empty
// lines are skipped. A line that cannot be read yields a [*JobError]; an error of r itself ends
// the sequence.
func Lines(r io.Reader, defaults Spec) iter.Seq2[Spec, error] { return lines(r, defaults, parseSpec) }

// Commands yields a job for each line of r, which is a command: text for a shell, or the JSON of
// package command, which begins with {. Otherwise it is like Lines.
func Commands(r io.Reader, defaults Spec) iter.Seq2[Spec, error] {
	return lines(r, defaults, parseCommand)
}

func lines(r io.Reader, defaults Spec, parse parser) iter.Seq2[Spec, error] {
	return func(yield func(Spec, error) bool) {
		lines := lineReader{in: bufio.NewReaderSize(charset.Reader(r), 64<<10), limit: maxLine}
		for n := 1; ; n++ {
			where := fmt.Sprintf("line %d", n)
			line, err := lines.next()
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.Is(err, errLineTooLong):
				err = &JobError{Where: where, Err: err}
			case err != nil:
				yield(Spec{}, fmt.Errorf("read %s: %w", where, err))
				return
			case len(line) == 0:
				continue
			}
			spec := defaults
			if err == nil {
				spec, err = parse.line(where, line, defaults)
			}
			if !yield(spec, err) {
				return
			}
		}
	}
}

// parser reads a line.
type parser func(line []byte, defaults Spec) (Spec, error)

// line returns the job of a line; any error is a *JobError.
func (parse parser) line(where string, line []byte, defaults Spec) (Spec, error) {
	spec, err := parse(line, defaults)
	if err != nil {
		return Spec{}, &JobError{Where: where, ID: spec.ID, Err: err}
	}
	spec.Where = where
	return spec, nil
}

// lineReader reads lines of up to limit bytes into one buffer.
type lineReader struct {
	in    *bufio.Reader
	limit int
	line  []byte
}

// next returns the next line without surrounding space, valid until the next call.
// The error is io.EOF at the end and errLineTooLong for a line that was skipped;
// after any other error the line is incomplete and not returned.
func (l *lineReader) next() ([]byte, error) {
	l.line = l.line[:0]
	tooLong := false
	for begun := false; ; begun = true {
		part, err := l.in.ReadSlice('\n')
		if !tooLong {
			l.line = append(l.line, part...)
		}
		if len(l.line) > l.limit {
			tooLong, l.line = true, nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case tooLong:
			return nil, errLineTooLong
		case err != nil && len(part) == 0 && !begun:
			return nil, io.EOF
		}
		return bytes.TrimSpace(l.line), nil
	}
}

// lineJSON is a job on a line. Pointers distinguish absent from empty.
type lineJSON struct {
	ID            *string         `json:"id"`
	Kind          string          `json:"kind"`
	Payload       json.RawMessage `json:"payload"`
	PayloadBase64 *string         `json:"payload_base64"`
	Deadline      *string         `json:"deadline"`
	Delay         *string         `json:"delay"`
	MaxRun        *string         `json:"max_run"`
	MaxSilence    *string         `json:"max_silence"`
	MaxFailures   *int            `json:"max_failures"`
	Inputs        json.RawMessage `json:"inputs"`
	Estimate      *string         `json:"estimate"`
	Group         *string         `json:"group"`
}

// parseSpec reads a line. An unknown field is an error: it is probably a typing error,
// and the job would run without the intended setting. With an error it returns the
// fields that could be read.
func parseSpec(line []byte, defaults Spec) (Spec, error) {
	var l lineJSON
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return Spec{}, readable(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Spec{}, errors.New("it has more than one JSON value")
	}
	spec := defaults
	spec.Kind = l.Kind
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
			return spec, fmt.Errorf("field deadline is %.40q; it must be a time with its zone, such as 2026-01-31T09:30:00Z or "+
				"2026-01-31T10:30:00+01:00", *l.Deadline)
		}
		spec.Deadline = deadline
	}
	if l.Group != nil {
		if spec.Group = *l.Group; spec.Group == "" {
			return spec, errors.New("field group is empty; leave it out for the group of the flags, or none")
		}
	}
	if err := l.terms(&spec.Terms); err != nil {
		return spec, err
	}
	var err error
	if l.Inputs != nil {
		if spec.Inputs, err = named.Parse(l.Inputs); err != nil {
			return spec, err
		}
	}
	spec.Payload, err = l.payload()
	return spec, err
}

// terms sets the terms that the line contains.
func (l *lineJSON) terms(t *Terms) error {
	for _, field := range []struct {
		name, example string
		text          *string
		to            *time.Duration
	}{
		{"delay", "90s or 24h, up to 7d", l.Delay, &t.Delay},
		{"max_run", "90s or 24h", l.MaxRun, &t.MaxRun},
		{"max_silence", "90s or 10m", l.MaxSilence, &t.MaxSilence},
		{"estimate", "90s or 6h", l.Estimate, &t.Estimate},
	} {
		if field.text == nil {
			continue
		}
		d, err := durations.Parse(*field.text)
		if err != nil {
			return fmt.Errorf("field %s is %.40q; it must be a time such as %s", field.name, *field.text, field.example)
		}
		*field.to = d
	}
	if l.MaxFailures != nil {
		t.MaxFailures = *l.MaxFailures
	}
	if l.Estimate != nil && t.Estimate <= 0 {
		return fmt.Errorf("field estimate is %.40q; work takes at least 1s: leave it out if it is not known", *l.Estimate)
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

// parseCommand reads a line that is a command.
func parseCommand(line []byte, defaults Spec) (spec Spec, err error) {
	c := command.Command{Argv: []string{"sh", "-c", string(line)}}
	if line[0] == '{' {
		c, err = command.Parse(line)
	} else {
		err = c.Check()
	}
	if err != nil {
		return Spec{}, err
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return Spec{}, err
	}
	spec = defaults
	spec.Kind = cmp.Or(spec.Kind, command.Kind)
	spec.Payload, err = queue.JSONPayload(raw)
	return spec, err
}

// readable translates a JSON error into words about the line's fields.
func readable(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case ok && wrong.Field != "":
		return fmt.Errorf("field %s is a JSON %s; it must be a %s", wrong.Field, wrong.Value, typeName(wrong.Type))
	case ok:
		return fmt.Errorf("it is a JSON %s; it must be an object", wrong.Value)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it is not JSON: it ends too early")
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if strings.HasPrefix(text, "unknown field") {
		return fmt.Errorf("%s; known are id, kind, payload, payload_base64, deadline, delay, max_run, max_silence, max_failures, estimate, "+
			"inputs and group", text)
	}
	return fmt.Errorf("it is not JSON: %s", text)
}

// typeName is what a field takes, in the words of JSON.
func typeName(t reflect.Type) string {
	if t.Kind() == reflect.Int {
		return "whole number"
	}
	return "string"
}

// Interruptible returns a reader of in whose reads end with ctx, unlike reads of a
// terminal or pipe. Its goroutine ends when in ends, or with the first byte after ctx
// has ended; if that never comes, with the process.
func Interruptible(ctx context.Context, in io.Reader) io.Reader {
	reader, writer := io.Pipe()
	context.AfterFunc(ctx, func() { _ = writer.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(writer, in)
		_ = writer.CloseWithError(err) // nil is the end of the input
	}()
	return reader
}

// Spool copies in to a temporary file, so that the input can be read twice. remove
// closes and deletes the file.
func Spool(in io.Reader) (file *os.File, remove func(), err error) {
	file, err = os.CreateTemp("", "producer-*.jsonl")
	if err != nil {
		return nil, nil, fmt.Errorf("store the input in a temporary file: %w", err)
	}
	remove = func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}
	if _, err = io.Copy(file, in); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		remove()
		return nil, nil, fmt.Errorf("store the input in a temporary file: %w", err)
	}
	return file, remove, nil
}
