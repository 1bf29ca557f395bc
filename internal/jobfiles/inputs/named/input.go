// Package named reads and checks the inputs that a job names, without a call and without
// a file.
package named

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spotworker/spotworker/internal/storage/blobref"
	"github.com/spotworker/spotworker/internal/text/lazyregexp"
	"github.com/spotworker/spotworker/job"
)

// Parse reads the inputs of a message. An error names the input and its fault.
func Parse(raw []byte) ([]job.Input, error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, errors.New("inputs must be a list of JSON objects")
	}
	all := make([]job.Input, 0, len(parts))
	for i, part := range parts {
		in, err := ParseOne(part)
		if err != nil {
			return nil, fmt.Errorf("input %d: %w", i+1, err)
		}
		all = append(all, in)
	}
	return all, nil
}

// ParseOne reads one input. An unknown field is an error: it may change which files are
// meant.
func ParseOne(raw []byte) (job.Input, error) {
	var in job.Input
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return in, readable(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return in, errors.New("it has more than one JSON value")
	}
	return in, Check(in)
}

// readable translates an error of package json.
func readable(err error) error {
	text := strings.TrimPrefix(err.Error(), "json: ")
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case ok && wrong.Field != "":
		return fmt.Errorf("field %s is a JSON %s; it must be a string", wrong.Field, wrong.Value)
	case ok:
		return fmt.Errorf("it is a JSON %s; it must be an object", wrong.Value)
	case strings.HasPrefix(text, "unknown field"):
		return fmt.Errorf("%.100s; known are account, container, blob, prefix, manifest, etag and to", text)
	}
	return fmt.Errorf("it is not JSON: %s", text)
}

// Encode returns inputs in the form that messages have, nil for none.
func Encode(all []job.Input) (json.RawMessage, error) {
	if len(all) == 0 {
		return nil, nil
	}
	for i, in := range all {
		if err := Check(in); err != nil {
			return nil, fmt.Errorf("input %d: %w", i+1, err)
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(all); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// containerName is the service's rule for names of containers, with the special ones.
var containerName = lazyregexp.New(`^(\$root|\$web|[a-z0-9](-?[a-z0-9]){2,62})$`)

// etagForm is the form of an ETag in an HTTP header.
var etagForm = lazyregexp.New(`^"[\x21-\x7e]{1,126}"$`)

// Check returns the fault of an input, as far as that shows without reading anything.
func Check(in job.Input) error {
	if err := blobref.CheckContainer(in.Container); err != nil {
		return fmt.Errorf("field container %w", err)
	}
	if !containerName().MatchString(in.Container) {
		return fmt.Errorf("field container is %.80q, which is no name of a container", in.Container)
	}
	if err := checkNames(in); err != nil {
		return err
	}
	if in.Account != "" {
		if _, err := AccountURL(in.Account); err != nil {
			return fmt.Errorf("field account %w", err)
		}
	}
	if in.ETag != "" && (in.Blob+in.Manifest == "" || !etagForm().MatchString(in.ETag)) {
		return fmt.Errorf("field etag is %.80q; it must be the ETag of a blob or manifest as in the HTTP header, quotes included", in.ETag)
	}
	return checkTo(in)
}

// checkNames checks the names of blobs; an input has at most one.
func checkNames(in job.Input) error {
	given := 0
	for _, field := range []struct{ name, text string }{
		{"blob", in.Blob}, {"prefix", in.Prefix}, {"manifest", in.Manifest},
	} {
		if field.text == "" {
			continue
		}
		given++
		text := field.text
		if field.name == "prefix" {
			if text = strings.TrimRight(text, "./"); text == "" {
				continue
			}
		}
		if err := blobref.CheckBlob(text); err != nil {
			return fmt.Errorf("field %s %w", field.name, err)
		}
	}
	if given > 1 {
		return errors.New("more than one of blob, prefix and manifest is given")
	}
	return nil
}

// checkTo checks the path in the folder of inputs.
func checkTo(in job.Input) error {
	switch {
	case in.To == "":
		return nil
	case in.Manifest != "":
		return errors.New("field to is not for a manifest: each line of it may have one")
	}
	if err := CheckPath(in.To); err != nil {
		return fmt.Errorf("field to is %.200q: %w", in.To, err)
	}
	return nil
}

// AccountURL returns the blob endpoint of a storage account in one form, so that two can
// be compared.
func AccountURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("is %.100q; it must be the blob endpoint of an account, such as https://account.blob.core.windows.net",
			withoutSecrets(text))
	}
	return "https://" + strings.ToLower(u.Host) + strings.TrimRight(u.Path, "/"), nil
}

// withoutSecrets cuts a URL where a signature or a password could be.
func withoutSecrets(text string) string {
	text, _, _ = strings.Cut(text, "?")
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		return "…" + text[i:]
	}
	return text
}
