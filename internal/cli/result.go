package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// JSONLine returns v as a line of JSON, without HTML escaping and without characters that
// control a terminal. If v is an object, the fields of further objects follow its own.
func JSONLine(v any, more ...any) ([]byte, error) {
	line, err := encode(v)
	if err != nil {
		return nil, err
	}
	for _, object := range more {
		fields, err := encode(object)
		if err != nil {
			return nil, err
		}
		if string(fields) != "{}" {
			line = append(append(line[:len(line)-1], ','), fields[1:]...)
		}
	}
	return plaintext.JSON(append(line, '\n')), nil
}

// encode returns v as JSON without HTML escaping.
func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("encode a line of output: %w", err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// ResultField returns a job's result as the rest of a line: JSON compacted, and other
// text with its line breaks as \n. A terminal gets printable characters only.
func ResultField(result []byte, terminal bool) string {
	var compact bytes.Buffer
	text := string(bytes.TrimSuffix(result, []byte("\n")))
	if strings.ContainsAny(text, "\r\n\t") && json.Compact(&compact, result) == nil {
		text = compact.String()
	}
	if text = plaintext.Field(text); terminal {
		return plaintext.Line(text)
	}
	return text
}
