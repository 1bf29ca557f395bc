// Package blobref checks the names of blobs that jobs give, and puts the errors of reading
// and writing such blobs into words.
package blobref

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spotworker/spotworker/internal/text/lazyregexp"
)

// MaxName is the service's limit on a blob's name, in characters.
const MaxName = 1024

// CheckContainer returns the fault of a container's name, to follow the name of the
// field, or nil.
func CheckContainer(name string) error {
	switch {
	case name == "":
		return errors.New("is missing or empty")
	case isURL(name):
		return errors.New("is a URL; it must be a container's name")
	}
	return nil
}

// CheckBlob returns the fault of a blob's name, to follow the name of the field, or nil.
// It rejects URLs, and names that would reach the service changed: clients turn a
// backslash into a slash and resolve "../", so that the handler would read another blob,
// possibly in another container.
func CheckBlob(name string) error {
	switch {
	case name == "":
		return errors.New("is missing or empty")
	case isURL(name):
		return errors.New("is a URL; it must be the blob's name in its container")
	case utf8.RuneCountInString(name) > MaxName:
		return fmt.Errorf("has %d characters; a blob's name has at most %d", utf8.RuneCountInString(name), MaxName)
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

var scheme = lazyregexp.New(`^[A-Za-z][0-9A-Za-z+.-]*://`)

func isURL(s string) bool { return scheme().MatchString(s) }
