package storage

import (
	"encoding/base64"
	"strings"
)

// maxListResults is the most items in one page of any listing.
const maxListResults = 5000

// A marker is the base64 of the name that the next page begins with.
// Clients must not look into it.

// listPage is the page that a listing is asked for: where it starts, and how many
// items it may have.
func (r *request) listPage() (start string, most int, err error) {
	if most, err = r.pageSize(maxListResults); err != nil {
		return "", 0, err
	}
	start, err = r.listStart()
	return start, most, err
}

// listStart is the least name that a listing may show: that of the marker, or
// the prefix.
func (r *request) listStart() (string, error) {
	start, err := base64.URLEncoding.DecodeString(r.query.Get("marker"))
	if err != nil {
		return "", errInvalidQuery.because("the marker is not one that this service gave out")
	}
	return max(string(start), r.query.Get("prefix")), nil
}

// writeListHead repeats a listing's parameters.
func writeListHead(doc *xmlDoc, r *request, most int) {
	doc.optional("Prefix", r.query.Get("prefix"))
	doc.optional("Marker", r.query.Get("marker"))
	doc.number("MaxResults", int64(most))
	doc.optional("Delimiter", r.query.Get("delimiter"))
}

// writeListEnd closes a listing. It has a NextMarker in any case, empty on the
// last page.
func writeListEnd(doc *xmlDoc, next string) {
	doc.text("NextMarker", base64.URLEncoding.EncodeToString([]byte(next)))
	doc.close("EnumerationResults")
}

// listNames answers a listing of what a service has: a page of names, each
// written by write, in an element called element.
func listNames(r *request, element string, names *nameIndex, write func(doc *xmlDoc, name string)) (*reply, error) {
	start, most, err := r.listPage()
	if err != nil {
		return nil, err
	}
	doc := newXML("EnumerationResults", "ServiceEndpoint", r.endpoint())
	writeListHead(doc, r, most)
	doc.open(element)
	next, n := "", 0
	for name := range names.from(start) {
		if !strings.HasPrefix(name, r.query.Get("prefix")) {
			break
		}
		if n == most {
			next = name
			break
		}
		n++
		write(doc, name)
	}
	doc.close(element)
	writeListEnd(doc, next)
	return xmlReply(doc), nil
}
