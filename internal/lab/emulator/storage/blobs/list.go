package blobs

import (
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// listed is one entry of a blob listing: a blob, or a common prefix.
type listed struct {
	name     string
	version  *version // nil for a prefix, and for a blob never committed
	isPrefix bool
}

// listBlobs answers List Blobs: flat, or by a delimiter.
func (s *Service) listBlobs(r *protocol.Request) (*protocol.Reply, error) {
	c, err := s.find(r)
	if err != nil {
		return nil, err
	}
	page, err := r.ListPage()
	if err != nil {
		return nil, err
	}
	if page := int(s.page.Load()); page > 0 {
		most = min(most, page)
	}
	entries, next := c.list(blobFilter{
		prefix:      r.Query.Get("prefix"),
		delimiter:   r.Query.Get("delimiter"),
		uncommitted: r.Includes("uncommittedblobs"),
		now:         r.Now,
	}, page.Start, page.Most)
	doc := protocol.NewXML("EnumerationResults", "ServiceEndpoint", r.Endpoint(), "ContainerName", r.Resource)
	page.WriteHead(doc)
	doc.Open("Blobs")
	for _, e := range entries {
		e.write(doc, r.Includes("metadata"))
	}
	doc.Close("Blobs")
	page.WriteEnd(doc, next)
	return protocol.NewXMLReply(doc), nil
}

// blobFilter says which blobs a listing shows, and how.
type blobFilter struct {
	prefix, delimiter string
	uncommitted       bool
	now               time.Time
}

// list returns a page of entries from the name start on, and the name that the
// next page begins with, or "". The page is a consistent view of the
// container; several pages are not.
func (c *container) list(f blobFilter, start string, most int) (page []listed, next string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for more := true; more; {
		more = false
		for name := range c.names.From(start) {
			if !strings.HasPrefix(name, f.prefix) {
				return page, ""
			}
			entry, show := c.entry(name, f)
			if !show {
				continue
			}
			if len(page) == most {
				return page, name
			}
			page = append(page, entry)
			if entry.isPrefix { // continue behind all names that it covers
				start, more = pastPrefix(entry.name), true
				break
			}
		}
	}
	return page, ""
}

// entry tells how a listing shows a blob, and whether it does.
func (c *container) entry(name string, f blobFilter) (listed, bool) {
	b := c.find(name, f.now)
	if b == nil || (b.current == nil && !f.uncommitted) {
		return listed{}, false
	}
	if f.delimiter != "" {
		if i := strings.Index(name[len(f.prefix):], f.delimiter); i >= 0 {
			return listed{name: name[:len(f.prefix)+i+len(f.delimiter)], isPrefix: true}, true
		}
	}
	return listed{name: name, version: b.current}, true
}

// pastPrefix is a string that is greater than every name with that prefix.
// Names are valid UTF-8, which never has the byte 0xFF.
func pastPrefix(prefix string) string { return prefix + "\xff" }

// write lists one entry.
func (e listed) write(doc *protocol.XML, withMetadata bool) {
	if e.isPrefix {
		doc.Open("BlobPrefix")
		doc.Text("Name", e.name)
		doc.Close("BlobPrefix")
		return
	}
	doc.Open("Blob")
	doc.Text("Name", e.name)
	doc.Open("Properties")
	if e.version == nil {
		doc.Number("Content-Length", 0)
		doc.Text("BlobType", "BlockBlob")
	} else {
		e.version.writeProperties(doc)
	}
	doc.Close("Properties")
	if withMetadata && e.version != nil {
		protocol.WriteMetadata(doc, e.version.metadata)
	}
	doc.Close("Blob")
}

// writeProperties lists a version's properties. Listings show entity tags
// without quotes.
func (v *version) writeProperties(doc *protocol.XML) {
	doc.Time("Creation-Time", v.created)
	doc.Time("Last-Modified", v.modified)
	doc.Text("Etag", strings.Trim(v.etag, `"`))
	doc.Number("Content-Length", v.content.Size())
	doc.Text("Content-Type", v.properties.contentType)
	doc.Optional("Content-Encoding", v.properties.contentEncoding)
	doc.Optional("Content-Language", v.properties.contentLanguage)
	doc.Optional("Content-MD5", v.properties.contentMD5)
	doc.Optional("Cache-Control", v.properties.cacheControl)
	doc.Optional("Content-Disposition", v.properties.contentDisposition)
	doc.Text("BlobType", "BlockBlob")
	doc.Text("AccessTier", "Hot")
	doc.Text("AccessTierInferred", "true")
	status, state := v.lease.shown(time.Now())
	doc.Text("LeaseStatus", status)
	doc.Text("LeaseState", state)
	doc.Text("ServerEncrypted", "true")
}
