package blobs

import (
	"net/http"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// putBlob replaces a blob by the request's body. The blob's committed block list is empty
// afterwards, and its staged blocks are gone.
func (s *Service) putBlob(r *protocol.Request) (*protocol.Reply, error) {
	switch kind := r.Header.Get("x-ms-blob-type"); kind {
	case "BlockBlob":
	case "":
		return nil, protocol.ErrMissingHeader.Because("x-ms-blob-type")
	default:
		return nil, protocol.ErrNotImplemented.Because("blobs of type %q", kind)
	}
	c, conds, err := s.target(r)
	if err != nil {
		return nil, err
	}
	metadata, err := protocol.ParseMetadata(r.Header)
	if err != nil {
		return nil, err
	}
	props := requestProperties(r.Header)
	if props.contentType == "" {
		props.contentType = r.Header.Get("Content-Type")
	}
	hash, err := protocol.VerifyBody(r, "x-ms-blob-content-md5", "Content-MD5")
	if err != nil {
		return nil, err
	}
	props.contentMD5 = hash

	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(r.Rest, r.Now)
	old := c.committed(r.Rest, r.Now)
	if err := conds.checkWrite(old); err != nil {
		return nil, err
	}
	// Blocks that were staged for a blob without a version are in the way of
	// a create too, though the blob cannot be read.
	if conds.createOnly() && c.find(r.Rest, r.Now) != nil {
		return nil, errBlobExists
	}
	if err := checkLease(old, r.Now); err != nil {
		return nil, err
	}
	v := s.newVersion(r, nil, metadata, props)
	v.content = protocol.NewContent(r.Data)
	b := c.change(r.Rest)
	b.current, b.staged = v, stagedBlocks{}
	p := written(http.StatusCreated, v)
	p.Set("Content-MD5", props.contentMD5)
	p.Set("x-ms-content-crc64", r.Header.Get("x-ms-content-crc64"))
	return p, nil
}

// newVersion begins a version. It keeps the time of creation of old; old is nil
// where the blob is new, or replaced by Put Blob.
func (s *Service) newVersion(r *protocol.Request, old *version, metadata map[string]string, props properties) *version {
	v := &version{etag: s.newETag(), created: r.Now, modified: r.Now, metadata: metadata, properties: props}
	if old != nil {
		v.created = old.created
	}
	if v.properties.contentType == "" {
		v.properties.contentType = "application/octet-stream"
	}
	return v
}

// setMetadata replaces a blob's metadata. Body, committed and staged blocks
// stay; the entity tag changes.
func (s *Service) setMetadata(r *protocol.Request) (*protocol.Reply, error) {
	c, conds, err := s.target(r)
	if err != nil {
		return nil, err
	}
	metadata, err := protocol.ParseMetadata(r.Header)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old, err := c.existing(r, conds)
	if err != nil {
		return nil, err
	}
	if err := checkLease(old, r.Now); err != nil {
		return nil, err
	}
	v := *old
	v.etag, v.modified, v.metadata = s.newETag(), r.Now, metadata
	c.change(r.Rest).current = &v
	return written(http.StatusOK, &v), nil
}

// existing returns the committed version of a blob that a request changes, if it
// meets the conditions. The container must be locked for writing.
func (c *container) existing(r *protocol.Request, conds conditions) (*version, error) {
	v := c.committed(r.Rest, r.Now)
	if err := conds.checkWrite(v); err != nil {
		return nil, err
	}
	if v == nil {
		return nil, errBlobNotFound
	}
	return v, nil
}

// deleteBlob removes a committed blob and its staged blocks. Blocks staged for a blob
// that was never committed cannot be deleted.
func (s *Service) deleteBlob(r *protocol.Request) (*protocol.Reply, error) {
	c, conds, err := s.target(r)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.existing(r, conds)
	if err != nil {
		return nil, err
	}
	if err := checkLease(v, r.Now); err != nil {
		return nil, err
	}
	c.remove(r.Rest)
	return protocol.NewReply(http.StatusAccepted), nil
}

// requestProperties reads the x-ms-blob- headers of a write.
func requestProperties(h http.Header) properties {
	return properties{
		contentType:        h.Get("x-ms-blob-content-type"),
		contentEncoding:    h.Get("x-ms-blob-content-encoding"),
		contentLanguage:    h.Get("x-ms-blob-content-language"),
		contentDisposition: h.Get("x-ms-blob-content-disposition"),
		cacheControl:       h.Get("x-ms-blob-cache-control"),
		contentMD5:         h.Get("x-ms-blob-content-md5"),
	}
}
