package cli

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/spotworker/spotworker/internal/plaintext"
)

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
