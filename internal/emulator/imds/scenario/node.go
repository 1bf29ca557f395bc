package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Limits of a file.
const (
	maxFile  = 1 << 20 // bytes
	maxDepth = 20      // of lists and objects within each other
)

// node is a JSON value and where it stands, so that whatever is wrong with it can
// be pointed at. The value is a string, a json.Number, a bool, nil, a []node or a
// []member.
type node struct {
	at    int // byte offset
	value any
}

// member is a name in an object and what it stands for.
type member struct {
	at    int // byte offset of the name
	name  string
	value node
}

// problem is what is wrong at some place of the text.
type problem struct {
	at   int
	text string
}

func (p *problem) Error() string { return p.text }

func wrong(at int, format string, args ...any) error {
	return &problem{at, fmt.Sprintf(format, args...)}
}

// readNode reads one JSON value that is all of text.
func readNode(text []byte) (node, error) {
	if len(text) > maxFile {
		return node{}, wrong(0, "the file is larger than %d bytes", maxFile)
	}
	var whole any
	if err := json.Unmarshal(text, &whole); err != nil {
		at := len(text)
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = max(int(syntax.Offset)-1, 0)
		}
		return node{}, wrong(at, "not JSON: %v", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return (&nodeReader{text, decoder}).next(0)
}

// nodeReader reads text that is known to be JSON.
type nodeReader struct {
	text    []byte
	decoder *json.Decoder
}

// token returns the next token and where it begins.
func (r *nodeReader) token() (json.Token, int, error) {
	at := int(r.decoder.InputOffset())
	for at < len(r.text) && bytes.IndexByte([]byte(" \t\r\n,:"), r.text[at]) >= 0 {
		at++
	}
	token, err := r.decoder.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return token, at, err
}

func (r *nodeReader) next(depth int) (node, error) {
	token, at, err := r.token()
	if err != nil {
		return node{}, err
	}
	if depth > maxDepth {
		return node{}, wrong(at, "more than %d lists and objects within each other", maxDepth)
	}
	switch token {
	case json.Delim('{'):
		members, err := r.members(depth)
		return node{at, members}, err
	case json.Delim('['):
		list, err := r.list(depth)
		return node{at, list}, err
	}
	return node{at, token}, nil
}

func (r *nodeReader) members(depth int) (members []member, err error) {
	names := map[string]bool{}
	for r.decoder.More() {
		token, at, err := r.token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // nothing else is a name
		if names[name] {
			return nil, wrong(at, "%q is given twice", name)
		}
		names[name] = true
		value, err := r.next(depth + 1)
		if err != nil {
			return nil, err
		}
		members = append(members, member{at, name, value})
	}
	_, _, err = r.token() // the closing brace
	return members, err
}

func (r *nodeReader) list(depth int) (list []node, err error) {
	for r.decoder.More() {
		value, err := r.next(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	_, _, err = r.token() // the closing bracket
	return list, err
}
