package handlers

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxBlobName is the service's limit on a blob's name, in characters.
const maxBlobName = 1024

// DigestPayload names the blob to hash. Unknown fields are ignored.
type DigestPayload struct {
	// Container must be one that the worker was allowed to read.
	Container string `json:"container"`

	// Blob is the blob's name as a listing shows it: not a URL, not escaped.
	Blob string `json:"blob"`

	// Version is the id of one version of the blob, on accounts that keep
	// versions. Empty means the version that is current when the job starts.
	Version string `json:"version,omitempty"`
}

// parseDigestPayload returns an error that names the field that is wrong.
func parseDigestPayload(raw []byte) (DigestPayload, error) {
	var p DigestPayload
	if err := json.Unmarshal(raw, &p); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			return DigestPayload{}, fmt.Errorf("field %s is a JSON %s; it must be a string", wrong.Field, wrong.Value)
		}
		return DigestPayload{}, errors.New(`it must be a JSON object such as {"container":"data","blob":"2026/a.tar"}`)
	}
	for _, field := range []struct {
		name  string
		check error
	}{
		{"container", checkContainer(p.Container)},
		{"blob", checkBlob(p.Blob)},
		{"version", checkVersion(p.Version)},
	} {
		if field.check != nil {
			return DigestPayload{}, fmt.Errorf("field %s %w", field.name, field.check)
		}
	}
	return p, nil
}

func checkContainer(name string) error {
	switch {
	case name == "":
		return errors.New("is missing or empty")
	case isURL(name):
		return errors.New("is a URL; it must be a container's name")
	}
	return nil
}

// checkBlob refuses, beside URLs, the names that would not reach the service as
// they are written: a backslash becomes a slash and "../" is resolved on the
// way, so that another blob would be read, even one of another container.
func checkBlob(name string) error {
	switch {
	case name == "":
		return errors.New("is missing or empty")
	case isURL(name):
		return errors.New("is a URL; it must be the blob's name in its container")
	case utf8.RuneCountInString(name) > maxBlobName:
		return fmt.Errorf("has %d characters; a blob's name has at most %d", utf8.RuneCountInString(name), maxBlobName)
	case strings.ContainsFunc(name, unicode.IsControl), strings.ContainsAny(name, "\\\uFFFD"):
		return errors.New("has a backslash or a control character, which no blob's name can have")
	}
	for segment := range strings.SplitSeq(name, "/") {
		if strings.HasSuffix(segment, ".") {
			return errors.New("has a part that ends with a dot, which no blob's name can have")
		}
	}
	return nil
}

// versionID is what a version's id is made of: the time of the write. It goes
// into the query of a request as it stands.
var versionID = regexp.MustCompile(`^[0-9A-Za-z:.-]{0,64}$`)

func checkVersion(id string) error {
	if !versionID.MatchString(id) {
		return errors.New("is not a version's id such as 2026-01-31T09:30:00.1234567Z")
	}
	return nil
}

var scheme = regexp.MustCompile(`^[A-Za-z][0-9A-Za-z+.-]*://`)

func isURL(s string) bool { return scheme.MatchString(s) }
