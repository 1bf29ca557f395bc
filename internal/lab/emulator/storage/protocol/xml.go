package protocol

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"strconv"
	"time"
)

// XML writes an XML document an element at a time. Element names are this
// package's own and go in unescaped; text and attributes are escaped.
// encoding/xml would do the same from structs at many times the cost.
type XML struct {
	buf bytes.Buffer
}

// NewXML begins a document and opens its root element. Attributes are pairs of
// name and value.
func NewXML(root string, attributes ...string) *XML {
	d := &XML{}
	d.buf.WriteString(`<?xml version="1.0" encoding="utf-8"?>`)
	d.buf.WriteString("<" + root)
	for i := 0; i+1 < len(attributes); i += 2 {
		d.buf.WriteString(" " + attributes[i] + `="`)
		d.escape(attributes[i+1])
		d.buf.WriteByte('"')
	}
	d.buf.WriteByte('>')
	return d
}

// Open writes the start tag of an element.
func (d *XML) Open(name string) {
	d.buf.WriteByte('<')
	d.buf.WriteString(name)
	d.buf.WriteByte('>')
}

// Close writes the end tag of an element.
func (d *XML) Close(name string) {
	d.buf.WriteString("</")
	d.buf.WriteString(name)
	d.buf.WriteByte('>')
}

// Text writes an element with a text.
func (d *XML) Text(name, value string) {
	d.Open(name)
	d.escape(value)
	d.Close(name)
}

// Optional is text, left out where the value is empty.
func (d *XML) Optional(name, value string) {
	if value != "" {
		d.Text(name, value)
	}
}

// Number writes an element with a number.
func (d *XML) Number(name string, n int64) {
	d.Text(name, strconv.FormatInt(n, 10))
}

// Time writes an element with a time, in whole seconds.
func (d *XML) Time(name string, t time.Time) {
	d.Text(name, t.UTC().Format(TimeFormat))
}

func (d *XML) bytes() []byte { return d.buf.Bytes() }

// escape writes text. Most of it, base64 above all, needs no escaping and is
// copied whole.
func (d *XML) escape(text string) {
	if PlainXML(text) {
		d.buf.WriteString(text)
		return
	}
	_ = xml.EscapeText(&d.buf, []byte(text)) // a bytes.Buffer does not fail
}

// PlainXML reports whether text is printable ASCII with nothing that XML
// escapes.
func PlainXML(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c > '~', c == '<', c == '>', c == '&', c == '"', c == '\'':
			return false
		}
	}
	return true
}

// TimeFormat is RFC 1123 in GMT with whole seconds, the only precision that
// the service shows.
const TimeFormat = http.TimeFormat
