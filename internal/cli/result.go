package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spotworker/spotworker/internal/plaintext"
)

// JSONLine returns v as a line of JSON, without HTML escaping and without characters that
// control a terminal.
func JSONLine(v any) ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("encode a line of output: %w", err)
	}
	return plaintext.JSON(line.Bytes()), nil
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
