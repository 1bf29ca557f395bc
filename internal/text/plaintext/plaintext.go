// Package plaintext makes text of untrusted origin safe to print and to log: a
// job's reason, a program's output, a result. Such text could otherwise clear a
// terminal, recolour it, reorder the text, or add a line that reads like a line of
// another job.
//
// Unprintable characters become U+FFFD: C0 and C1 control characters (a terminal
// takes U+009B for the start of a command), line and paragraph separators, the
// invisible characters that change the direction of text, and invalid UTF-8.
package plaintext

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns text on one line. Line breaks, tabs and all other white space
// become single spaces each.
func Line(text string) string {
	return clean(text, func(r rune) rune {
		if unicode.IsSpace(r) && r <= unicode.MaxLatin1 && r != 0x85 {
			return ' '
		}
		return unicode.ReplacementChar
	})
}

// Block returns text that may have several lines. Line feeds and tabs stay.
func Block(text string) string {
	return clean(text, func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return unicode.ReplacementChar
	})
}

// Field returns text as one field of a line that tabs divide, for scripts: line
// feeds, carriage returns and tabs are written \n, \r and \t. The rest is
// unchanged; for a terminal, apply [Line] as well.
func Field(text string) string { return fieldEscapes.Replace(text) }

var fieldEscapes = strings.NewReplacer("\n", `\n`, "\r", `\r`, "\t", `\t`)

// Message returns text as a message for people. It may have several lines; those after the
// first are indented, so that none of them reads like a message of its own.
func Message(text string) string {
	return strings.ReplaceAll(Block(strings.TrimRight(text, "\n")), "\n", "\n  ")
}

// Middle returns a text of at most most bytes. Of a longer text it leaves out the middle: the
// beginning says what failed, and the end why.
func Middle(text string, most int) string {
	const more = "…"
	if len(text) <= most {
		return text
	}
	head := (most - len(more)) / 2
	tail := len(text) - (most - len(more) - head)
	for range utf8.UTFMax - 1 { // between two characters
		if head > 0 && !utf8.RuneStart(text[head]) {
			head--
		}
		if tail < len(text) && !utf8.RuneStart(text[tail]) {
			tail++
		}
	}
	return text[:head] + more + text[tail:]
}

// JSON returns encoded JSON with the same value, in which each unprintable character is
// escaped. encoding/json escapes no more than C0 control characters. Text that is not UTF-8
// is no JSON; its invalid bytes become U+FFFD.
func JSON(encoded []byte) []byte {
	if isPlain(bytes.TrimSuffix(encoded, []byte("\n"))) {
		return encoded
	}
	escaped := make([]byte, 0, len(encoded)+16)
	for len(encoded) > 0 {
		r, size := utf8.DecodeRune(encoded)
		switch {
		case r == utf8.RuneError && size == 1:
			escaped = utf8.AppendRune(escaped, r)
		case !needsEscape(r):
			escaped = append(escaped, encoded[:size]...)
		default: // within a string: outside of strings JSON has white space and ASCII
			for _, unit := range utf16.AppendRune(nil, r) {
				escaped = fmt.Appendf(escaped, `\u%04x`, unit)
			}
		}
		encoded = encoded[size:]
	}
	return escaped
}

// needsEscape reports whether a character of encoded JSON must not reach a terminal.
func needsEscape(r rune) bool {
	between := r == '\n' || r == '\t' || r == '\r' // white space between values
	return !between && !unicode.IsPrint(r) && !isSpacing(r)
}

// clean replaces each rune that cannot be printed.
func clean(text string, unprintable func(rune) rune) string {
	if isPlain(text) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || isSpacing(r) {
			return r
		}
		return unprintable(r)
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
}

// isSpacing reports whether r is a visible space beside the ASCII one.
func isSpacing(r rune) bool { return unicode.Is(unicode.Zs, r) }

// isPlain reports whether text is printable ASCII, which most text is.
func isPlain[T string | []byte](text T) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
