package storage

import (
	"encoding/base64"
	"iter"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// chunkSize is the most names in one chunk of a nameIndex.
const chunkSize = 512

// nameIndex is a sorted set of names: sorted chunks of at most chunkSize names
// in sorted order. Adding, removing and seeking cost O(log n) and the move of
// one chunk; a chunk that overflows is split, which moves n/chunkSize slice
// headers. The zero value is empty.
type nameIndex struct {
	chunks [][]string
}

// chunk returns the position of the only chunk that may hold name.
func (x *nameIndex) chunk(name string) int {
	after := sort.Search(len(x.chunks), func(i int) bool { return x.chunks[i][0] > name })
	return max(after-1, 0)
}

// add adds a name.
func (x *nameIndex) add(name string) {
	if len(x.chunks) == 0 {
		x.chunks = [][]string{{name}}
		return
	}
	c := x.chunk(name)
	i, found := slices.BinarySearch(x.chunks[c], name)
	if found {
		return
	}
	x.chunks[c] = slices.Insert(x.chunks[c], i, name)
	if full := x.chunks[c]; len(full) > chunkSize {
		half := len(full) / 2
		x.chunks[c] = slices.Clone(full[:half])
		x.chunks = slices.Insert(x.chunks, c+1, slices.Clone(full[half:]))
	}
}

// remove removes a name.
func (x *nameIndex) remove(name string) {
	if len(x.chunks) == 0 {
		return
	}
	c := x.chunk(name)
	i, found := slices.BinarySearch(x.chunks[c], name)
	if !found {
		return
	}
	x.chunks[c] = slices.Delete(x.chunks[c], i, i+1)
	if len(x.chunks[c]) == 0 {
		x.chunks = slices.Delete(x.chunks, c, c+1)
	}
}

// from iterates over the names that are not less than start, in order. The set
// must not change during the iteration.
func (x *nameIndex) from(start string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if len(x.chunks) == 0 {
			return
		}
		c := x.chunk(start)
		i, _ := slices.BinarySearch(x.chunks[c], start)
		for ; c < len(x.chunks); c, i = c+1, 0 {
			for _, name := range x.chunks[c][i:] {
				if !yield(name) {
					return
				}
			}
		}
	}
}

// Longest names: a queue's or container's in bytes, a blob's in characters.
const (
	minResourceName = 3
	maxResourceName = 63
	maxBlobName     = 1024
)

// checkResourceName refuses what cannot name a queue or a container: 3 to 63
// lower-case letters, digits and hyphens, where a letter or digit stands at
// both ends and on both sides of every hyphen.
func checkResourceName(name string) error {
	if len(name) < minResourceName || len(name) > maxResourceName {
		return errNameLength.because("%q has %d characters, must have 3 to 63", name, len(name))
	}
	previous := byte('-')
	for i := range len(name) {
		c := name[i]
		letter := (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')
		if !letter && (c != '-' || previous == '-') {
			return errInvalidName.because("%q", name)
		}
		previous = c
	}
	if previous == '-' {
		return errInvalidName.because("%q", name)
	}
	return nil
}

// checkBlobName refuses names that are too long, and those that would not
// reach the service as they were written: HTTP libraries and the service turn
// a backslash into a slash, resolve "." and "..", and drop a dot or a slash at
// the end. Names with characters that XML cannot hold are refused too: a listing
// could not show them.
func checkBlobName(name string) error {
	if n := utf8.RuneCountInString(name); n > maxBlobName {
		return errNameLength.because("a blob's name has at most %d characters, not %d", maxBlobName, n)
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unfitForName) {
		return errInvalidName.because("%q has a backslash, a control character or invalid UTF-8", name)
	}
	for segment := range strings.SplitSeq(name, "/") {
		if strings.HasSuffix(segment, ".") {
			return errInvalidName.because("%q has a segment that ends with a dot", name)
		}
	}
	if strings.HasSuffix(name, "/") {
		return errInvalidName.because("%q ends with a slash", name)
	}
	return nil
}

// unfitForName reports characters that cannot be part of a blob's name.
func unfitForName(c rune) bool {
	return c < ' ' || c == 0x7f || c == '\\' || c == 0xFFFE || c == 0xFFFF
}

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

// listNames answers a listing of queues or containers: a page of names, each written
// by write, in an element of that name.
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
