// Package paths decides which paths can name the outputs of a job: paths that can be part
// of a blob's name, and lead nowhere else on the machine of a reader.
package paths

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrRefused means that a file cannot be an output, also in any retry: because of its
// name, its kind, or a limit of the job.
var ErrRefused = errors.New("refused")

// Limits on paths. The service allows 1,024 characters and 254 segments for the name of a
// blob; a job id and the folder of a claim take up to 200 characters and 3 segments.
const (
	Max         = 800 // UTF-16 code units, as the service counts
	maxSegments = 250
)

// Validate returns why a path cannot name an output, or nil. A path is relative and
// has slashes. What blobs refuse, change, or need to be encoded twice is not allowed:
// control characters, backslashes, empty segments, and segments that end with a dot.
func Validate(name string) error {
	if problem := problemOf(name); problem != "" {
		return fmt.Errorf("output %s: %w: its name %s", Quote(name), ErrRefused, problem)
	}
	return nil
}

// problemOf returns the fault of a path, or "".
func problemOf(name string) string {
	switch {
	case name == "":
		return "is empty"
	case !utf8.ValidString(name):
		return "is not UTF-8, and names of blobs are"
	case len(utf16.Encode([]rune(name))) > Max:
		return fmt.Sprintf("has more than %d characters, which leaves no room for the job's id in a blob's name", Max)
	case path.IsAbs(name):
		return "begins with a slash: give a path below the job's output folder"
	case strings.ContainsRune(name, '\\'):
		return "has a backslash, which blobs turn into a slash"
	case strings.ContainsFunc(name, isForbidden):
		return "has a control character, which blobs refuse"
	}
	segments := strings.Split(name, "/")
	if len(segments) > maxSegments {
		return fmt.Sprintf("has more than %d folders, and blobs allow no more", maxSegments)
	}
	for _, segment := range segments {
		switch {
		case segment == "":
			return "has two slashes in a row, or one at its end"
		case segment == "..":
			return `has "..", which leads out of the job's output folder`
		case strings.HasSuffix(segment, "."):
			return fmt.Sprintf("has %s, which ends with a dot, and blobs lose that", Quote(segment))
		case strings.TrimRightFunc(segment, unicode.IsSpace) != segment:
			return fmt.Sprintf("has %s, which ends with a space, and Windows loses that", Quote(segment))
		}
	}
	return ""
}

// isForbidden reports whether a name of a blob cannot have a character.
func isForbidden(r rune) bool {
	return unicode.IsControl(r) || r == utf8.RuneError || r == '\uFFFE' || r == '\uFFFF'
}

// Quote shows a name in an error without letting a long one fill the log.
func Quote(s string) string {
	const most = 120
	if len(s) > most {
		return fmt.Sprintf("%.*q…", most, s)
	}
	return fmt.Sprintf("%q", s)
}
