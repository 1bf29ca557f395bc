// Package jsonpos parses JSON and keeps the position of every value, so that an
// error in a configuration file can name its line and column.
//
//	v, err := jsonpos.Parse(data)
//	...
//	return jsonpos.Locate("kinds.json", data, v.Errorf("give a whole number"))
//	// kinds.json:3:14: kinds.a.concurrency: give a whole number
//
// Unlike encoding/json it rejects an object that has a name twice.
package jsonpos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxDepth is how deep arrays and objects may be nested.
const maxDepth = 20

// Value is a JSON value and its position.
type Value struct {
	Offset int    // of its first byte
	Path   string // from the top, such as kinds.thumbnail.command[0]; empty for the top itself
	Data   any    // string, json.Number, bool, nil, []Value or Object
}

// Object holds the members of a JSON object in the order of the text. No name
// occurs twice.
type Object []Member

// Member is a name in an object and its value.
type Member struct {
	Offset int // of the name
	Name   string
	Value  Value
}

// Error is a problem at a position of the text.
type Error struct {
	Offset  int
	Problem string
}

func (e *Error) Error() string { return e.Problem }

// Errorf returns an [*Error] at the offset.
func Errorf(offset int, format string, args ...any) error {
	return &Error{offset, fmt.Sprintf(format, args...)}
}

// Errorf returns an [*Error] at the value, which begins with the value's path.
func (v Value) Errorf(format string, args ...any) error {
	return located(v.Offset, v.Path, format, args...)
}

// Errorf returns an [*Error] at the member's name, which begins with its path.
func (m Member) Errorf(format string, args ...any) error {
	return located(m.Offset, m.Value.Path, format, args...)
}

func located(offset int, path, format string, args ...any) error {
	if path != "" {
		format = "%s: " + format
		args = append([]any{path}, args...)
	}
	return Errorf(offset, format, args...)
}

// Locate puts the file, the line and the column in front of an error that wraps
// an [*Error]. It returns any other error as it is.
func Locate(file string, data []byte, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	line, column := position(data, e.Offset)
	return fmt.Errorf("%s:%d:%d: %w", file, line, column, err)
}

// position counts lines and characters from 1, as editors do.
func position(data []byte, offset int) (line, column int) {
	before := data[:min(offset, len(data))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return 1 + bytes.Count(before, []byte("\n")), 1 + utf8.RuneCount(before[start:])
}

// Parse parses data, which must hold exactly one JSON value. Every error is an
// [*Error].
func Parse(data []byte) (Value, error) {
	if err := validate(data); err != nil {
		return Value{}, err
	}
	p := &parser{data: data, decoder: json.NewDecoder(bytes.NewReader(data))}
	p.decoder.UseNumber()
	return p.value("", 0)
}

func validate(data []byte) error {
	var whole json.RawMessage
	decoder := json.NewDecoder(bytes.NewReader(data))
	err := decoder.Decode(&whole)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return Errorf(max(int(syntax.Offset)-1, 0), "not JSON: %v", err)
	}
	if err != nil { // the end of data
		return Errorf(len(data), "not JSON: it ends too early")
	}
	if rest := bytes.TrimLeft(data[decoder.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return Errorf(len(data)-len(rest), "not JSON: more text follows the end of the value")
	}
	return nil
}

// parser walks data, which is known to be one JSON value.
type parser struct {
	data    []byte
	decoder *json.Decoder
}

// token returns the next token and its offset.
func (p *parser) token() (json.Token, int, error) {
	offset := int(p.decoder.InputOffset())
	for offset < len(p.data) && bytes.IndexByte([]byte(" \t\r\n,:"), p.data[offset]) >= 0 {
		offset++
	}
	token, err := p.decoder.Token()
	if err != nil {
		err = Errorf(offset, "not JSON: %v", err)
	}
	return token, offset, err
}

func (p *parser) value(path string, depth int) (Value, error) {
	token, offset, err := p.token()
	if err != nil {
		return Value{}, err
	}
	if depth > maxDepth {
		return Value{}, Errorf(offset, "more than %d arrays and objects inside each other", maxDepth)
	}
	v := Value{Offset: offset, Path: path, Data: token}
	switch token {
	case json.Delim('['):
		v.Data, err = p.array(path, depth)
	case json.Delim('{'):
		v.Data, err = p.object(path, depth)
	}
	return v, err
}

func (p *parser) array(path string, depth int) (values []Value, err error) {
	for p.decoder.More() {
		v, err := p.value(fmt.Sprintf("%s[%d]", path, len(values)), depth+1)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	_, _, err = p.token() // the closing bracket
	return values, err
}

func (p *parser) object(path string, depth int) (members Object, err error) {
	names := map[string]bool{}
	for p.decoder.More() {
		token, offset, err := p.token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // valid JSON has nothing else here
		m := Member{Offset: offset, Name: name, Value: Value{Path: name}}
		if path != "" {
			m.Value.Path = path + "." + name
		}
		if names[name] {
			return nil, m.Errorf("this name is given twice")
		}
		names[name] = true
		if m.Value, err = p.value(m.Value.Path, depth+1); err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	_, _, err = p.token() // the closing brace
	return members, err
}
