package protocol

import (
	"encoding/base64"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
)

// maxListResults is the most items in one page of any listing.
const maxListResults = 5000

// Pages draws the pages of listings, as the service may send them: shorter than asked for,
// or without an item, and still with a NextMarker ("List Blobs"). It is safe for
// concurrent use.
type Pages struct {
	mu      sync.Mutex
	random  *rand.Rand
	markers int // given out
}

// NewPages returns pages drawn from a seed.
func NewPages(seed uint64) *Pages { return &Pages{random: rand.New(rand.NewPCG(seed, 0))} }

// draw returns how many items a page may have of those asked for, and whether it has a
// NextMarker even if no item follows. The first page of a listing has one item at most: a
// caller that reads no other page is wrong in most tests. Nil draws full pages.
func (p *Pages) draw(most int, first bool) (items int, marker bool) {
	if p == nil {
		return most, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n := p.random.IntN(4); {
	case n == 0 || first && n == 1:
		return 0, true
	case first:
		return 1, p.random.IntN(2) == 0
	case n == 1:
		return min(1+p.random.IntN(4), most), p.random.IntN(2) == 0
	}
	return most, p.random.IntN(4) == 0
}

// marker returns the marker of a name. Markers differ even for the same name: an empty page
// ends where it began.
func (p *Pages) marker(name string) string {
	n := 0
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.markers++
		n = p.markers
	}
	return base64.URLEncoding.EncodeToString([]byte(strconv.Itoa(n) + "/" + name))
}

// ListPage is the page that a listing is asked for.
type ListPage struct {
	Start string // the least name that it may show: the marker's, or the prefix
	Most  int    // items that it may have

	request *Request
	asked   int
	marker  bool // whether there is a NextMarker even if no item follows
}

// ListPage reads the page that a listing is asked for.
func (r *Request) ListPage() (p ListPage, err error) {
	p = ListPage{request: r}
	if p.asked, err = r.pageSize(maxListResults); err != nil {
		return p, err
	}
	p.Most, p.marker = r.Pages.draw(p.asked, r.Query.Get("marker") == "")
	p.Start, err = r.listStart()
	return p, err
}

// listStart is the least name that a listing may show: the marker's, or the prefix.
func (r *Request) listStart() (string, error) {
	marker, err := base64.URLEncoding.DecodeString(r.Query.Get("marker"))
	_, start, found := strings.Cut(string(marker), "/")
	if err != nil || len(marker) > 0 && !found {
		return "", ErrInvalidQuery.Because("the marker is not one that this service gave out")
	}
	return max(start, r.Query.Get("prefix")), nil
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

// WriteHead repeats the listing's parameters.
func (p ListPage) WriteHead(doc *XML) {
	query := p.request.Query
	doc.Optional("Prefix", query.Get("prefix"))
	doc.Optional("Marker", query.Get("marker"))
	doc.Number("MaxResults", int64(p.asked))
	doc.Optional("Delimiter", query.Get("delimiter"))
}

// WriteEnd closes the listing. It has a NextMarker in any case, empty on the last page.
// next is the name that the next page begins with, or "".
func (p ListPage) WriteEnd(doc *XML, next string) {
	if next == "" && p.marker {
		next = p.request.Query.Get("prefix") + "\xff" // behind all names with the prefix
		if p.Start >= next {
			next = ""
		}
	}
	if next != "" {
		next = p.request.Pages.marker(next)
	}
	doc.Text("NextMarker", next)
	doc.Close("EnumerationResults")
}

// ListNames answers a listing of queues or containers: a page of names, each written
// by write, in an element of that name.
func ListNames(r *Request, element string, names *NameIndex, write func(doc *XML, name string)) (*Reply, error) {
	page, err := r.ListPage()
	if err != nil {
		return nil, err
	}
	doc := NewXML("EnumerationResults", "ServiceEndpoint", r.Endpoint())
	page.WriteHead(doc)
	doc.Open(element)
	next, n := "", 0
	for name := range names.From(page.Start) {
		if !strings.HasPrefix(name, r.Query.Get("prefix")) {
			break
		}
		if n == page.Most {
			next = name
			break
		}
		n++
		write(doc, name)
	}
	doc.Close(element)
	page.WriteEnd(doc, next)
	return NewXMLReply(doc), nil
}
