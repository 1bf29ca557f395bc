package storage

import (
	"bytes"
	"encoding/xml"
	"strconv"
	"time"
)

// xmlDoc writes an XML document an element at a time. Element names are this
// package's own and go in unescaped; text and attributes are escaped.
// encoding/xml would do the same from structs at many times the cost.
type xmlDoc struct {
	buf bytes.Buffer
}

// newXML begins a document and opens its root element. Attributes are pairs of
// name and value.
func newXML(root string, attributes ...string) *xmlDoc {
	d := &xmlDoc{}
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

func (d *xmlDoc) open(name string) {
	d.buf.WriteByte('<')
	d.buf.WriteString(name)
	d.buf.WriteByte('>')
}

func (d *xmlDoc) close(name string) {
	d.buf.WriteString("</")
	d.buf.WriteString(name)
	d.buf.WriteByte('>')
}

func (d *xmlDoc) text(name, value string) {
	d.open(name)
	d.escape(value)
	d.close(name)
}

// optional is text, left out where the value is empty.
func (d *xmlDoc) optional(name, value string) {
	if value != "" {
		d.text(name, value)
	}
}

func (d *xmlDoc) number(name string, n int64) {
	d.text(name, strconv.FormatInt(n, 10))
}

func (d *xmlDoc) time(name string, t time.Time) {
	d.text(name, t.UTC().Format(timeFormat))
}

func (d *xmlDoc) bytes() []byte { return d.buf.Bytes() }

// escape writes text. Most of it, base64 above all, needs no escaping and is
// copied whole.
func (d *xmlDoc) escape(text string) {
	if plainXML(text) {
		d.buf.WriteString(text)
		return
	}
	_ = xml.EscapeText(&d.buf, []byte(text)) // a bytes.Buffer does not fail
}

// plainXML reports whether text is printable ASCII with nothing that XML
// escapes.
func plainXML(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c > '~', c == '<', c == '>', c == '&', c == '"', c == '\'':
			return false
		}
	}
	return true
}
