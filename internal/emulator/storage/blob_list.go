package storage

import (
	"strings"
	"time"
)

// listed is one entry of a blob listing: a blob, or a common prefix.
type listed struct {
	name     string
	version  *version // nil for a prefix, and for a blob never committed
	isPrefix bool
}

// listBlobs answers List Blobs: flat, or by a delimiter.
func (s *blobService) listBlobs(r *request) (*reply, error) {
	c, err := s.find(r)
	if err != nil {
		return nil, err
	}
	start, most, err := r.listPage()
	if err != nil {
		return nil, err
	}
	entries, next := c.list(blobFilter{
		prefix:      r.query.Get("prefix"),
		delimiter:   r.query.Get("delimiter"),
		uncommitted: r.includes("uncommittedblobs"),
		now:         r.now,
	}, start, most)
	doc := newXML("EnumerationResults", "ServiceEndpoint", r.endpoint(), "ContainerName", r.resource)
	writeListHead(doc, r, most)
	doc.open("Blobs")
	for _, e := range entries {
		e.write(doc, r.includes("metadata"))
	}
	doc.close("Blobs")
	writeListEnd(doc, next)
	return xmlReply(doc), nil
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
		for name := range c.names.from(start) {
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
func (e listed) write(doc *xmlDoc, withMetadata bool) {
	if e.isPrefix {
		doc.open("BlobPrefix")
		doc.text("Name", e.name)
		doc.close("BlobPrefix")
		return
	}
	doc.open("Blob")
	doc.text("Name", e.name)
	doc.open("Properties")
	if e.version == nil {
		doc.number("Content-Length", 0)
		doc.text("BlobType", "BlockBlob")
	} else {
		e.version.writeProperties(doc)
	}
	doc.close("Properties")
	if withMetadata && e.version != nil {
		writeMetadata(doc, e.version.metadata)
	}
	doc.close("Blob")
}

// writeProperties lists a version's properties. Listings show entity tags
// without quotes.
func (v *version) writeProperties(doc *xmlDoc) {
	doc.time("Creation-Time", v.created)
	doc.time("Last-Modified", v.modified)
	doc.text("Etag", strings.Trim(v.etag, `"`))
	doc.number("Content-Length", v.content.size())
	doc.text("Content-Type", v.properties.contentType)
	doc.optional("Content-Encoding", v.properties.contentEncoding)
	doc.optional("Content-Language", v.properties.contentLanguage)
	doc.optional("Content-MD5", v.properties.contentMD5)
	doc.optional("Cache-Control", v.properties.cacheControl)
	doc.optional("Content-Disposition", v.properties.contentDisposition)
	doc.text("BlobType", "BlockBlob")
	doc.text("AccessTier", "Hot")
	doc.text("AccessTierInferred", "true")
	status, state := v.lease.shown(time.Now())
	doc.text("LeaseStatus", status)
	doc.text("LeaseState", state)
	doc.text("ServerEncrypted", "true")
}
