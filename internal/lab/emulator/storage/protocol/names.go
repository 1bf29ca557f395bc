package protocol

import (
	"strings"
	"unicode/utf8"
)

// Longest names: a queue's or container's in bytes, a blob's in characters.
const (
	minResourceName = 3
	maxResourceName = 63
	maxBlobName     = 1024
)

// CheckResourceName refuses what cannot name a queue or a container: 3 to 63
// lower-case letters, digits and hyphens, where a letter or digit stands at
// both ends and on both sides of every hyphen.
func CheckResourceName(name string) error {
	if len(name) < minResourceName || len(name) > maxResourceName {
		return errNameLength.Because("%q has %d characters, must have 3 to 63", name, len(name))
	}
	previous := byte('-')
	for i := range len(name) {
		c := name[i]
		letter := (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')
		if !letter && (c != '-' || previous == '-') {
			return errInvalidName.Because("%q", name)
		}
		previous = c
	}
	if previous == '-' {
		return errInvalidName.Because("%q", name)
	}
	return nil
}

// CheckBlobName refuses names that are too long, and names that would not reach the
// service as they were written: HTTP libraries and the service turn a backslash into a
// slash, resolve "." and "..", and drop a dot or a slash at the end. Names with
// characters that XML cannot hold are refused too: a listing could not show them.
func CheckBlobName(name string) error {
	if n := utf8.RuneCountInString(name); n > maxBlobName {
		return errNameLength.Because("a blob's name has at most %d characters, not %d", maxBlobName, n)
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unfitForName) {
		return errInvalidName.Because("%q has a backslash, a control character or invalid UTF-8", name)
	}
	for segment := range strings.SplitSeq(name, "/") {
		if strings.HasSuffix(segment, ".") {
			return errInvalidName.Because("%q has a segment that ends with a dot", name)
		}
	}
	if strings.HasSuffix(name, "/") {
		return errInvalidName.Because("%q ends with a slash", name)
	}
	return nil
}

// unfitForName reports characters that cannot be part of a blob's name.
func unfitForName(c rune) bool {
	return c < ' ' || c == 0x7f || c == '\\' || c == 0xFFFE || c == 0xFFFF
}

// A marker is the base64 of the name that the next page begins with.
// Clients must not look into it.
