// Package plaintext makes text of untrusted origin safe to print and to log: a
// job's reason, a program's output, a result. Such text could otherwise clear a
// terminal, recolour it, reorder what is shown, or add a line that reads like one
// of another job.
//
// Unprintable characters become U+FFFD: C0 and C1 control characters (a terminal
// takes U+009B for the start of a command), line and paragraph separators, the
// invisible characters that change the direction of text, and invalid UTF-8.
package plaintext

import (
	"strings"
	"unicode"
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
func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
