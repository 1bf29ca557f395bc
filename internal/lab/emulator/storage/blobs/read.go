package blobs

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// maxHashedRange is the longest range for which a read returns a hash.
const maxHashedRange = 4 << 20

// getBlob sends a blob or a range of it.
func (s *Service) getBlob(r *protocol.Request) (*protocol.Reply, error) {
	v, err := s.readable(r)
	if err != nil {
		return nil, err
	}
	asked := protocol.RequestedRange(r)
	at, err := resolveRange(asked, v.content.Size())
	if err != nil {
		return nil, err
	}
	status := http.StatusOK
	if asked != nil {
		status = http.StatusPartialContent
	}
	p := protocol.NewReply(status)
	v.describe(p)
	p.Body, p.Served = v.content.Read(at), at
	if asked == nil {
		p.Set("Content-MD5", v.properties.contentMD5)
		return p, nil
	}
	p.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at.Offset, at.Offset+at.Count-1, v.content.Size()))
	p.Set("x-ms-blob-content-md5", v.properties.contentMD5)
	return p, setRangeHash(p, r, v, at)
}

// setRangeHash adds the hash of a range where the request asks for one.
func setRangeHash(p *protocol.Reply, r *protocol.Request, v *version, at protocol.Range) error {
	wantsMD5 := r.Header.Get("x-ms-range-get-content-md5") == "true"
	wantsCRC := r.Header.Get("x-ms-range-get-content-crc64") == "true"
	if !wantsMD5 && !wantsCRC {
		return nil
	}
	if at.Count > maxHashedRange {
		return errRangeHash
	}
	var data bytes.Buffer
	_, _ = v.content.Read(at).WriteTo(&data) // a bytes.Buffer does not fail
	if wantsMD5 {
		p.Set("Content-MD5", protocol.MD5(data.Bytes()))
	}
	if wantsCRC {
		p.Set("x-ms-content-crc64", protocol.CRC64(data.Bytes()))
	}
	return nil
}

// getProperties describes a blob.
func (s *Service) getProperties(r *protocol.Request) (*protocol.Reply, error) {
	v, err := s.readable(r)
	if err != nil {
		return nil, err
	}
	p := protocol.NewReply(http.StatusOK)
	v.describe(p)
	p.Set("Content-MD5", v.properties.contentMD5)
	p.Set("Content-Length", strconv.FormatInt(v.content.Size(), 10))
	p.Set("x-ms-access-tier", "Hot")
	p.Set("x-ms-access-tier-inferred", "true")
	return p, nil
}

// getBlobMetadata describes a blob by its metadata only.
func (s *Service) getBlobMetadata(r *protocol.Request) (*protocol.Reply, error) {
	v, err := s.readable(r)
	if err != nil {
		return nil, err
	}
	p := written(http.StatusOK, v)
	p.SetMetadata(v.metadata)
	return p, nil
}

// readable returns the version that a request may read.
func (s *Service) readable(r *protocol.Request) (*version, error) {
	c, conds, err := s.target(r)
	if err != nil {
		return nil, err
	}
	v := c.snapshot(r.Rest, r.Now)
	return v, conds.checkRead(v)
}

// describe adds the headers that tell of a blob.
func (v *version) describe(p *protocol.Reply) {
	p.Set("ETag", v.etag)
	p.SetTime("Last-Modified", v.modified)
	p.SetTime("x-ms-creation-time", v.created)
	p.Set("x-ms-blob-type", "BlockBlob")
	p.Set("x-ms-server-encrypted", "true")
	status, state := v.lease.shown(time.Now())
	p.Set("x-ms-lease-status", status)
	p.Set("x-ms-lease-state", state)
	p.Set("Accept-Ranges", "bytes")
	p.Set("Content-Type", v.properties.contentType)
	p.Set("Content-Encoding", v.properties.contentEncoding)
	p.Set("Content-Language", v.properties.contentLanguage)
	p.Set("Content-Disposition", v.properties.contentDisposition)
	p.Set("Cache-Control", v.properties.cacheControl)
	p.SetMetadata(v.metadata)
}

// resolveRange cuts a range to a blob's size; nil is the whole blob. A range that begins
// at or past the end is refused.
func resolveRange(asked *protocol.Range, size int64) (protocol.Range, error) {
	if asked == nil {
		return protocol.Range{Count: size}, nil
	}
	if asked.Offset >= size {
		return protocol.Range{}, errInvalidRange.WithHeader("Content-Range", fmt.Sprintf("bytes */%d", size))
	}
	left := size - asked.Offset
	if asked.Count < 0 || asked.Count > left {
		return protocol.Range{Offset: asked.Offset, Count: left}, nil
	}
	return *asked, nil
}
