package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxDepth bounds how deep values may be nested; a kinds file needs four.
const maxDepth = 16

// value is a JSON value that knows where it stands, so that whoever finds it
// wrong can say so.
type value struct {
	at   int64  // offset of its first byte
	name string // its way from the top, such as kinds.thumbnail.memory
	is   any    // string, json.Number, bool, nil, []value or object
}

// object is the members of a JSON object in their order.
type object []member

type member struct {
	name string
	at   int64 // offset of the name
	value
}

// fault is what is wrong at some place of a file.
type fault struct {
	at   int64
	text string
}

func (f *fault) Error() string { return f.text }

// wrong says what is wrong with a value.
func (v value) wrong(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if v.name != "" {
		text = v.name + ": " + text
	}
	return &fault{at: v.at, text: text}
}

// position counts lines and characters from 1, as editors do.
func position(data []byte, at int64) string {
	before := data[:min(at, int64(len(data)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + len([]rune(string(before[bytes.LastIndexByte(before, '\n')+1:])))
	return fmt.Sprintf("%d:%d", line, column)
}

// readJSON reads a file that holds one JSON value. Unlike encoding/json it
// refuses names that come twice.
func readJSON(data []byte) (value, error) {
	r := &jsonReader{data: data, decoder: json.NewDecoder(bytes.NewReader(data))}
	r.decoder.UseNumber()
	v, err := r.value("", 0)
	if err != nil {
		return value{}, err
	}
	if _, err := r.decoder.Token(); !errors.Is(err, io.EOF) {
		return value{}, &fault{at: r.next(), text: "there is something behind the end of the JSON value"}
	}
	return v, nil
}

type jsonReader struct {
	data    []byte
	decoder *json.Decoder
}

// next is where the next token begins.
func (r *jsonReader) next() int64 {
	at := r.decoder.InputOffset()
	for at < int64(len(r.data)) && strings.IndexByte(" \t\r\n,:", r.data[at]) >= 0 {
		at++
	}
	return at
}

func (r *jsonReader) token() (json.Token, int64, error) {
	at := r.next()
	token, err := r.decoder.Token()
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return token, at, nil
	case errors.As(err, &syntax):
		return nil, at, &fault{at: max(at, syntax.Offset-1), text: "this is no JSON: " + syntax.Error()}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, at, &fault{at: int64(len(r.data)), text: "this is no JSON: it ends early"}
	default:
		return nil, at, &fault{at: at, text: "this is no JSON: " + err.Error()}
	}
}

func (r *jsonReader) value(name string, depth int) (value, error) {
	token, at, err := r.token()
	if err != nil {
		return value{}, err
	}
	v := value{at: at, name: name, is: token}
	switch {
	case depth > maxDepth:
		return value{}, v.wrong("values are nested too deep")
	case token == json.Delim('['):
		v.is, err = r.array(name, depth)
	case token == json.Delim('{'):
		v.is, err = r.object(name, depth)
	}
	return v, err
}

func (r *jsonReader) array(name string, depth int) ([]value, error) {
	var all []value
	for r.decoder.More() {
		v, err := r.value(fmt.Sprintf("%s[%d]", name, len(all)), depth+1)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	_, _, err := r.token() // the end
	return all, err
}

func (r *jsonReader) object(name string, depth int) (object, error) {
	all := object{}
	for r.decoder.More() {
		token, at, err := r.token()
		if err != nil {
			return nil, err
		}
		key, ok := token.(string)
		if !ok {
			return nil, &fault{at: at, text: "this is no JSON: a name is missing"}
		}
		full := key
		if name != "" {
			full = name + "." + key
		}
		if slices.ContainsFunc(all, func(m member) bool { return m.name == key }) {
			return nil, &fault{at: at, text: full + ": this name is here twice"}
		}
		v, err := r.value(full, depth+1)
		if err != nil {
			return nil, err
		}
		all = append(all, member{name: key, at: at, value: v})
	}
	_, _, err := r.token() // the end
	return all, err
}
