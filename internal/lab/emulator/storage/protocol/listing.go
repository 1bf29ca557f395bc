package protocol

import (
	"encoding/base64"
	"math"
	"strings"
)

// maxListResults is the most items in one page of any listing.
const maxListResults = 5000

// ListPage is the page that a listing is asked for: where it starts, and how many
// items it may have.
func (r *Request) ListPage() (start string, most int, err error) {
	if most, err = r.pageSize(maxListResults); err != nil {
		return "", 0, err
	}
	start, err = r.listStart()
	return start, most, err
}

// listStart is the least name that a listing may show: the marker's, or the prefix.
func (r *Request) listStart() (string, error) {
	start, err := base64.URLEncoding.DecodeString(r.Query.Get("marker"))
	if err != nil {
		return "", ErrInvalidQuery.Because("the marker is not one that this service gave out")
	}
	return max(string(start), r.Query.Get("prefix")), nil
}

// pageSize reads maxresults: at least 1, and no more than most are given
// however many are asked for.
func (r *Request) pageSize(most int) (int, error) {
	n, err := r.Number("maxresults", int64(most), 1, math.MaxInt32)
	return min(int(n), most), err
}

// Includes reports whether the comma-separated include parameter has a value.
func (r *Request) Includes(value string) bool {
	for v := range strings.SplitSeq(r.Query.Get("include"), ",") {
		if strings.EqualFold(v, value) {
			return true
		}
	}
	return false
}

// WriteListHead repeats a listing's parameters.
func WriteListHead(doc *XML, r *Request, most int) {
	doc.Optional("Prefix", r.Query.Get("prefix"))
	doc.Optional("Marker", r.Query.Get("marker"))
	doc.Number("MaxResults", int64(most))
	doc.Optional("Delimiter", r.Query.Get("delimiter"))
}

// WriteListEnd closes a listing. It has a NextMarker in any case, empty on the
// last page.
func WriteListEnd(doc *XML, next string) {
	doc.Text("NextMarker", base64.URLEncoding.EncodeToString([]byte(next)))
	doc.Close("EnumerationResults")
}

// ListNames answers a listing of queues or containers: a page of names, each written
// by write, in an element of that name.
func ListNames(r *Request, element string, names *NameIndex, write func(doc *XML, name string)) (*Reply, error) {
	start, most, err := r.ListPage()
	if err != nil {
		return nil, err
	}
	doc := NewXML("EnumerationResults", "ServiceEndpoint", r.Endpoint())
	WriteListHead(doc, r, most)
	doc.Open(element)
	next, n := "", 0
	for name := range names.From(start) {
		if !strings.HasPrefix(name, r.Query.Get("prefix")) {
			break
		}
		if n == most {
			next = name
			break
		}
		n++
		write(doc, name)
	}
	doc.Close(element)
	WriteListEnd(doc, next)
	return NewXMLReply(doc), nil
}
