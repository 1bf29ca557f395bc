package storage

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxHashedRange is the longest range for which a read returns a hash.
const maxHashedRange = 4 << 20

// getBlob sends a blob or a range of it.
func (s *blobService) getBlob(r *request) (*reply, error) {
	v, err := s.readable(r)
	if err != nil {
		return nil, err
	}
	asked := requestedRange(r)
	at, err := resolveRange(asked, v.content.size())
	if err != nil {
		return nil, err
	}
	status := http.StatusOK
	if asked != nil {
		status = http.StatusPartialContent
	}
	p := newReply(status)
	v.describe(p)
	p.body, p.served = v.content.read(at), at
	if asked == nil {
		p.set("Content-MD5", v.properties.contentMD5)
		return p, nil
	}
	p.set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at.Offset, at.Offset+at.Count-1, v.content.size()))
	p.set("x-ms-blob-content-md5", v.properties.contentMD5)
	return p, setRangeHash(p, r, v, at)
}

// setRangeHash adds the hash of a range where the request asks for one.
func setRangeHash(p *reply, r *request, v *version, at Range) error {
	wantsMD5 := r.Header.Get("x-ms-range-get-content-md5") == "true"
	wantsCRC := r.Header.Get("x-ms-range-get-content-crc64") == "true"
	if !wantsMD5 && !wantsCRC {
		return nil
	}
	if at.Count > maxHashedRange {
		return errRangeHash
	}
	var data bytes.Buffer
	_, _ = v.content.read(at).WriteTo(&data) // a bytes.Buffer does not fail
	if wantsMD5 {
		p.set("Content-MD5", md5Of(data.Bytes()))
	}
	if wantsCRC {
		p.set("x-ms-content-crc64", crc64Of(data.Bytes()))
	}
	return nil
}

// getProperties describes a blob.
func (s *blobService) getProperties(r *request) (*reply, error) {
	v, err := s.readable(r)
	if err != nil {
		return nil, err
	}
	p := newReply(http.StatusOK)
	v.describe(p)
	p.set("Content-MD5", v.properties.contentMD5)
	p.set("Content-Length", strconv.FormatInt(v.content.size(), 10))
	p.set("x-ms-access-tier", "Hot")
	p.set("x-ms-access-tier-inferred", "true")
	return p, nil
}

// getBlobMetadata describes a blob by its metadata only.
func (s *blobService) getBlobMetadata(r *request) (*reply, error) {
	v, err := s.readable(r)
	if err != nil {
		return nil, err
	}
	p := written(http.StatusOK, v)
	p.setMetadata(v.metadata)
	return p, nil
}

// readable returns the version that a request may read.
func (s *blobService) readable(r *request) (*version, error) {
	c, conds, err := s.target(r)
	if err != nil {
		return nil, err
	}
	v := c.snapshot(r.rest, r.now)
	return v, conds.checkRead(v)
}

// describe adds the headers that tell of a blob.
func (v *version) describe(p *reply) {
	p.set("ETag", v.etag)
	p.setTime("Last-Modified", v.modified)
	p.setTime("x-ms-creation-time", v.created)
	p.set("x-ms-blob-type", "BlockBlob")
	p.set("x-ms-server-encrypted", "true")
	status, state := v.lease.shown(time.Now())
	p.set("x-ms-lease-status", status)
	p.set("x-ms-lease-state", state)
	p.set("Accept-Ranges", "bytes")
	p.set("Content-Type", v.properties.contentType)
	p.set("Content-Encoding", v.properties.contentEncoding)
	p.set("Content-Language", v.properties.contentLanguage)
	p.set("Content-Disposition", v.properties.contentDisposition)
	p.set("Cache-Control", v.properties.cacheControl)
	p.setMetadata(v.metadata)
}

// requestedRange reads the range headers, x-ms-range before Range. A range
// that is malformed, or not of the forms "bytes=a-b" and "bytes=a-", is
// ignored, as the service does.
func requestedRange(r *request) *Range {
	value := r.Header.Get("x-ms-range")
	if value == "" {
		value = r.Header.Get("Range")
	}
	spec, found := strings.CutPrefix(value, "bytes=")
	from, to, dash := strings.Cut(spec, "-")
	first, err := strconv.ParseUint(from, 10, 62)
	if !found || !dash || err != nil {
		return nil
	}
	if to == "" {
		return &Range{Offset: int64(first), Count: -1}
	}
	last, err := strconv.ParseUint(to, 10, 62)
	if err != nil || last < first {
		return nil
	}
	return &Range{Offset: int64(first), Count: int64(last-first) + 1}
}

// resolveRange cuts a range to a blob's size; nil is the whole blob. One that
// begins at or past the end is refused.
func resolveRange(asked *Range, size int64) (Range, error) {
	if asked == nil {
		return Range{Count: size}, nil
	}
	if asked.Offset >= size {
		return Range{}, errInvalidRange.withHeader("Content-Range", fmt.Sprintf("bytes */%d", size))
	}
	left := size - asked.Offset
	if asked.Count < 0 || asked.Count > left {
		return Range{Offset: asked.Offset, Count: left}, nil
	}
	return *asked, nil
}
