package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spotworker/spotworker/internal/storage/blobref"
	"github.com/spotworker/spotworker/internal/text/lazyregexp"
)

// blobName identifies a blob in a payload.
type blobName struct{ container, blob, version string }

// String names the blob in errors.
func (n blobName) String() string {
	if n.version != "" {
		return fmt.Sprintf("version %s of blob %q in container %s", n.version, n.blob, n.container)
	}
	return fmt.Sprintf("blob %q in container %s", n.blob, n.container)
}

// field is a field of a payload, and its error.
type field struct {
	name  string
	wrong error
}

// sourceFields are the fields that name the blob to read.
func sourceFields(container, blob, version string) []field {
	return []field{{"container", blobref.CheckContainer(container)}, {"blob", blobref.CheckBlob(blob)}, {"version", checkVersion(version)}}
}

// firstWrong returns an error that names the field that is wrong.
func firstWrong(fields []field) error {
	for _, f := range fields {
		if f.wrong != nil {
			return fmt.Errorf("field %s %w", f.name, f.wrong)
		}
	}
	return nil
}

// decodePayload reads a JSON object. Unknown fields are ignored.
func decodePayload(raw []byte, into any, example string) error {
	err := json.Unmarshal(raw, into)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong) && wrong.Field != "":
		return fmt.Errorf("field %s is a JSON %s; it must be a %s", wrong.Field, wrong.Value, wrong.Type)
	}
	return fmt.Errorf("it must be a JSON object such as %s", example)
}

// versionID is the form of a version's id: the time of the write. It becomes part of a
// request's query unescaped.
var versionID = lazyregexp.New(`^[0-9A-Za-z:.-]{0,64}$`)

func checkVersion(id string) error {
	if !versionID().MatchString(id) {
		return errors.New("is not a version's id such as 2026-01-31T09:30:00.1234567Z")
	}
	return nil
}

// encodeResult returns a result as JSON on one line, without HTML escapes.
func encodeResult(result any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(result); err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// portion describes how much of a whole is done, in the whole's unit.
func portion(done, whole int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	unit, divisor := 0, int64(1)
	for unit < len(units)-1 && whole/divisor >= 1024 {
		unit, divisor = unit+1, divisor*1024
	}
	if unit == 0 {
		return fmt.Sprintf("%d of %d B", done, whole)
	}
	return fmt.Sprintf("%.1f of %.1f %s", float64(done)/float64(divisor), float64(whole)/float64(divisor), units[unit])
}
