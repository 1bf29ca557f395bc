// Package charset reads text as editors and shells of Windows leave it: UTF-8, also behind a
// byte order mark, or UTF-16 behind one. It imports nothing of this module.
package charset

import (
	"bytes"
	"io"
	"os"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// Text returns a text in UTF-8 without a byte order mark. Without one before it the text is
// unchanged.
func Text(data []byte) []byte {
	if !bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) && !bytes.HasPrefix(data, []byte("\xff\xfe")) && !bytes.HasPrefix(data,
		[]byte("\xfe\xff")) {
		return data
	}
	text, _, _ := transform.Bytes(unicode.BOMOverride(transform.Nop), data) // it replaces what is invalid
	return text
}

// Reader returns what r has, as Text does.
func Reader(r io.Reader) io.Reader { return transform.NewReader(r, unicode.BOMOverride(transform.Nop)) }

// ReadFile returns the text of a file.
func ReadFile(name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	return Text(data), err
}
